"""Which of our answer forms a client wants: RFC 9110 section 12.5.1, ties go to what it named first.

`*/*` or no Accept gets the first form offered. axios sends `application/json, text/plain, */*`: it gets JSON.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from app.errors import NotAcceptable

Form = Literal["text/event-stream", "application/json", "text/plain"]
F = TypeVar("F", bound=str)


@dataclass(frozen=True, slots=True)
class _Range:
    """One media range of the header; `place` is its position."""

    type: str
    quality: float
    place: int

    @property
    def precision(self) -> int:
        return 0 if self.type == "*/*" else 1 if self.type.endswith("/*") else 2

    def covers(self, offer: str) -> bool:
        return self.type in ("*/*", offer) or self.type == offer.split("/")[0] + "/*"


def choose(accept: str | None, offers: Sequence[F]) -> F:
    """The offer that fits best. Raises NotAcceptable if none does."""
    ranges = [_range(part, place) for place, part in enumerate((accept or "").split(",")) if part.strip()]
    if not ranges:
        return offers[0]
    ranked = [
        (-best.quality, best.place, index)
        for index, offer in enumerate(offers)
        if (best := _best(ranges, offer)) and best.quality > 0
    ]
    if not ranked:
        raise NotAcceptable(f"This can be had as {', '.join(offers)}.")
    return offers[min(ranked)[2]]


def _best(ranges: Sequence[_Range], offer: str) -> _Range | None:
    """The most precise range that covers the offer: it alone gives the offer its quality."""
    covering = [r for r in ranges if r.covers(offer)]
    return max(covering, key=lambda r: (r.precision, -r.place), default=None)


def _range(part: str, place: int) -> _Range:
    media_type, *parameters = (piece.strip().lower() for piece in part.split(";"))
    weights = [p.partition("=")[2].strip() for p in parameters if p.partition("=")[0].strip() == "q"]
    return _Range("*/*" if media_type == "*" else media_type, _quality(weights), place)


def _quality(weights: Sequence[str]) -> float:
    """A weight that is none is taken as 1, as if it were not there."""
    try:
        weight = float(weights[0])
    except (IndexError, ValueError):
        return 1.0
    return weight if 0 <= weight <= 1 else 1.0
