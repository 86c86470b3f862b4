"""A tool call's arguments as every parser behind us can read them.

The SDK parses them too, and a run must not end by what it cannot read: an escaped half of a surrogate pair
cannot be encoded again, and nesting that is deep enough exhausts its stack.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import orjson

from app.runtime.fences import fenced
from app.runtime.models.json_frames import NotJson, dumps, loads, mended

MAX_DEPTH = 400
CUT = 200
MAX_MENDED: Final = 64 * 1024
"""What is longer is left as it came: reading it again and again takes too long."""
NOTHING: Final = frozenset({"", "null", "None", "[]", '""'})
"""How servers write that there are no arguments. Some languages know one kind of empty list only."""


def settled(pieces: Sequence[str]) -> str:
    """A call's arguments as the text of one JSON object, if what came amounts to one; else what came, readable.

    What came may break JSON's rules, be JSON within a JSON text, or within a fence, come twice, stand behind an
    empty object, or come in pieces of which each says again what was said before.
    """
    text = "".join(pieces)
    if text.strip() in NOTHING:
        return "{}"
    if len(text) > MAX_MENDED:
        return readable(text)
    for reading in _readings(text, pieces):
        if (mended_text := _object_text(reading)) is not None:
            return readable(mended_text)
    return readable(text)


def _readings(text: str, pieces: Sequence[str]) -> Iterator[str]:
    yield text
    yield from _unwrapped(text)
    text = text.strip()
    if (inside := fenced(text)) is not None:
        yield inside
    if text.startswith("{}"):
        yield text[2:]
    half = text[: len(text) // 2]
    if half * 2 == text:
        yield half
    if all(later.startswith(earlier) for earlier, later in pairwise(pieces)):
        yield pieces[-1]


def _unwrapped(text: str) -> Iterator[str]:
    """What is written in a JSON text, and in that again."""
    value: Any = text
    while isinstance(value, str) and value.lstrip().startswith('"'):
        try:
            value = loads(value.encode("utf-8", "replace"))
        except NotJson:
            return
        if isinstance(value, str):
            yield "{}" if value.strip() in NOTHING else value


def _object_text(text: str) -> str | None:
    """The text if it is a JSON object, written anew where it breaks JSON's rules; None if it is none."""
    try:
        return text if isinstance(orjson.loads(text), dict) else None
    except (orjson.JSONDecodeError, TypeError):
        pass
    try:
        value = loads(text.encode("utf-8", "replace"))
    except NotJson:
        return None
    return dumps(mended(value)).decode() if isinstance(value, dict) else None


def readable(arguments: str) -> str:
    """The same text, but halves of pairs are replaced, and what is nested too deep is cut: it is JSON no more,
    and the model is told so."""
    if arguments.count("[") + arguments.count("{") > MAX_DEPTH and _is_too_deep(arguments):
        return arguments[:CUT]
    if "\\ud" in arguments or "\\uD" in arguments:
        return _without_halves(arguments)
    return arguments


def _is_too_deep(arguments: str) -> bool:
    """The parser of those who come after us has as much stack as is left here, less what they stand on."""
    try:
        json.loads("[" * MAX_DEPTH + arguments + "]" * MAX_DEPTH)
    except RecursionError:
        return True
    except ValueError:
        return False
    return False


def _without_halves(arguments: str) -> str:
    try:
        parsed = json.loads(arguments)
    except ValueError:
        return arguments
    whole = mended(parsed)
    return arguments if whole == parsed else json.dumps(whole, ensure_ascii=False)
