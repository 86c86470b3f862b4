"""JSON from servers that break its rules, and text whose surrogate pairs were torn apart.

Whatever comes in, text that leaves here is valid Unicode: it can be encoded, stored and sent.
"""

import json
import re
from typing import Any

import orjson
from pydantic import BaseModel

_SURROGATE = re.compile("[\ud800-\udfff]")
REPLACEMENT = "\ufffd"
MAX_DIGITS = 16
"""Of numbers that come as text: longer ones count nothing that there is."""


class NotJson(ValueError):
    """What came is no JSON."""


def loads(data: bytes) -> Any:
    """Parse JSON fast; what the fast parser refuses (lone surrogates, raw control characters, broken UTF-8) is
    parsed patiently, and its strings may then hold lone surrogates: see `mended` and `TextJoiner`.

    Raises NotJson.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(data.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError) as error:
        raise NotJson(f"no JSON: {type(error).__name__}") from error


def dumps(value: Any) -> bytes:
    """JSON in UTF-8 of plain data and pydantic models; lone surrogates become U+FFFD."""
    try:
        encoded: bytes = orjson.dumps(value, default=_plain)
    except TypeError:
        text = json.dumps(mended(value), default=_plain, ensure_ascii=False, separators=(",", ":"))
        return str(mended(text)).encode()
    return encoded


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_none=True)
    raise TypeError(f"{type(value).__name__} cannot be sent as JSON")


def is_object(text: str) -> bool:
    """True if `text` is a JSON object."""
    try:
        return isinstance(loads(text.encode("utf-8", "replace")), dict)
    except NotJson:
        return False


def as_index(value: Any) -> int | None:
    """A place in a list, which some servers write as text or with a point; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str) and value.isdecimal() and len(value) < MAX_DIGITS:
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else None


def mended(value: Any) -> Any:
    """The same value with surrogate pairs joined and lone halves replaced, at any depth."""
    if isinstance(value, str):
        return value if value.isascii() or not _SURROGATE.search(value) else _mended_text(value)
    if isinstance(value, dict):
        return {mended(k): mended(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [mended(v) for v in value]
    return value


def _mended_text(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class TextJoiner:
    """One item's text as it comes in pieces: a first half of a pair is held back until its second arrives."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held = ""

    def feed(self, piece: str) -> str:
        if not self.held and (piece.isascii() or not _SURROGATE.search(piece)):
            return piece
        piece = self.held + piece
        self.held = ""
        if piece and "\ud800" <= piece[-1] <= "\udbff":
            self.held = piece[-1]
            piece = piece[:-1]
        return _mended_text(piece)

    def finish(self) -> str:
        """What is owed for a half whose other half never came."""
        held, self.held = self.held, ""
        return REPLACEMENT if held else ""
