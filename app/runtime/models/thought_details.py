"""What a provider adds to a model's thought for itself: signatures, encrypted parts, blocks with an index.

Some refuse the next request of a turn without them. They come in pieces as text does, and go back whole.
"""

from typing import Any, Final

from app.domain.json_types import JsonObject

DETAIL_FIELDS: Final = ("reasoning_details", "thinking_blocks")
_GROWING: Final = ("text", "thinking", "summary")


def add_details(known: list[JsonObject], told: list[Any]) -> int:
    """Add the parts that were told, the pieces of one part to each other; returns how many characters came."""
    size = 0
    for part in told:
        if not isinstance(part, dict):
            continue
        size += sum(len(value) for value in part.values() if isinstance(value, str))
        if known and _goes_on(known[-1], part):
            _extend(known[-1], part)
        else:
            known.append(dict(part))
    return size


def _goes_on(last: JsonObject, part: JsonObject) -> bool:
    """True if a piece belongs to the last part; one that is signed is whole, and one of no text never grows."""
    is_same = all(part.get(key) in (None, last.get(key)) for key in ("type", "index", "id"))
    return is_same and not last.get("signature") and any(isinstance(last.get(key), str) for key in _GROWING)


def _extend(last: JsonObject, part: JsonObject) -> None:
    for key, value in part.items():
        if key in _GROWING and isinstance(value, str):
            last[key] = (last.get(key) or "") + value
        elif value not in (None, ""):
            last[key] = value
