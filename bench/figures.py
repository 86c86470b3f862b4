"""What a measurement prints: a figure a line, each beside something measured in the same run."""

import statistics
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Line:
    """`value` with its unit; `ratio` to what `against` says; `target` is the ratio not to be exceeded."""

    name: str
    value: str
    ratio: float | None = None
    against: str = ""
    target: float | None = None

    def __str__(self) -> str:
        text = f"{self.name}: {self.value}"
        if self.ratio is not None:
            text += f", {self.ratio:.2f}× {self.against}"
        elif self.against:
            text += f" ({self.against})"
        if self.target is not None and self.ratio is not None:
            text += f" [target {self.target:g}×: {'met' if self.ratio <= self.target else 'MISSED'}]"
        return text


@dataclass(frozen=True, slots=True)
class Bench:
    """What a figure needs: an upstream of its own, a folder to work in, and whether to be quick."""

    upstream: str
    folder: Path
    quick: bool

    def pick(self, whole: int, quick: int) -> int:
        return quick if self.quick else whole


Figure = Callable[[Bench], AsyncIterator[Line]]


def percentile(values: Sequence[float], percent: int) -> float:
    """Interpolated; the largest value for fewer than two."""
    if len(values) < 2:
        return max(values, default=float("nan"))
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


def spread(values: Sequence[float]) -> str:
    """The median and the 99th percentile of seconds."""
    return f"p50 {ms(percentile(values, 50))}, p99 {ms(percentile(values, 99))}"
