"""JSON as the store and the event log write it: whatever a value holds, the result is one line of valid UTF-8.

Lone surrogates become U+FFFD, what is no JSON (a foreign object, a cycle) becomes its text, NaN becomes null.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import orjson

MAX_DEPTH = 200
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_SURROGATES = re.compile("[\ud800-\udfff]")


def encode(value: Any) -> bytes:
    """The JSON text of any value at all; it never raises."""
    try:
        return orjson.dumps(value, default=_text)
    except TypeError:  # a lone surrogate, a key that is no text, an integer over 64 bits, too deep
        return json.dumps(_plain(value, ()), ensure_ascii=False, separators=(",", ":")).encode()


def decode(text: str | bytes) -> Any:
    return orjson.loads(text)


def without_surrogates(text: str) -> str:
    """The same text with each lone surrogate replaced: neither UTF-8 nor SQLite takes one."""
    return text if text.isascii() else _SURROGATES.sub(REPLACEMENT, text)


def _text(value: object) -> str:
    try:
        return without_surrogates(str(value))
    except Exception:  # noqa: BLE001 - a foreign __str__ may do anything, and an event must not fail by it
        return f"<{type(value).__name__}>"


def _plain(value: Any, path: tuple[int, ...]) -> Any:
    """The value in what `json` takes; `path` names the containers around it."""
    match value:
        case str():
            return without_surrogates(value)
        case float():
            return value if math.isfinite(value) else None
        case None | bool() | int():
            return value
    if len(path) >= MAX_DEPTH or id(value) in path:
        return f"<{type(value).__name__}>"
    inner = (*path, id(value))
    if isinstance(value, Mapping):
        return {_text(k): _plain(v, inner) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v, inner) for v in value]
    return _text(value)
