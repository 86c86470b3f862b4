"""JSON as we take it from strangers: RFC 8259 to the letter, and nothing that bites later.

Refused beyond what orjson refuses (`NaN`, numbers beyond a double, lone surrogates, bytes that are no UTF-8):
nesting over 64, NUL in strings (no column of a database takes it everywhere), and a name that stands twice in
one object, of which readers differ in which one they believe. Every refusal says where.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from app.errors import BadRequest

MAX_DEPTH = 64
_SHOWN = 128


def parse(body: bytes, max_depth: int = MAX_DEPTH) -> Any:
    """The value of a whole body. Raises BadRequest with the place in `errors`."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _explained(body, error, max_depth) from None
    members = _check(value, max_depth)
    if members != count_members(body):
        raise _refusal(_repeated_name(body), "this name stands twice in one object")
    return value


def _check(value: Any, max_depth: int) -> int:
    """Raise for what must not pass; return how many members all objects have together."""
    members = 0
    for path, inner in _walk(value, max_depth):
        if isinstance(inner, str):
            if "\x00" in inner:
                raise _refusal(path, "a string holds NUL (U+0000)")
        elif isinstance(inner, dict):
            members += len(inner)
            if any("\x00" in name for name in inner):
                raise _refusal(path, "a name holds NUL (U+0000)")
    return members


def _walk(value: Any, max_depth: int) -> Iterator[tuple[list[str | int], Any]]:
    """Every value within `value`, itself first, with its path (one list, changed as the walk goes on).

    Neither recursive nor a copy of what it walks: a body may be a list of ten million zeros.
    """
    path: list[str | int] = []
    open_: list[Iterator[tuple[str | int, Any]]] = [iter([("body", value)])]
    while open_:
        entry = next(open_[-1], None)
        if entry is None:
            open_.pop()
            del path[-1:]
            continue
        path.append(entry[0])
        yield path, entry[1]
        members = _members(entry[1])
        if members is None:
            path.pop()
        elif len(open_) > max_depth:
            raise _refusal(path, f"nested deeper than {max_depth}")
        else:
            open_.append(members)


def _members(value: Any) -> Iterator[tuple[str | int, Any]] | None:
    if isinstance(value, dict):
        return iter(value.items())
    return enumerate(value) if isinstance(value, list) else None


def count_members(body: bytes) -> int:
    """How many colons stand outside of strings in a valid document: one for each member of an object."""
    count = position = 0
    while (start := body.find(b'"', position)) >= 0:
        count += body.count(b":", position, start)
        position = _end_of_string(body, start) + 1
    return count + body.count(b":", position)


def _end_of_string(body: bytes, start: int) -> int:
    end = body.find(b'"', start + 1)
    while _escaped(body, end):
        end = body.find(b'"', end + 1)
    return end


def _escaped(body: bytes, position: int) -> bool:
    """True if an odd number of backslashes stands before `position`."""
    before = position
    while body[before - 1] == 0x5C:
        before -= 1
    return (position - before) % 2 == 1


class _Repeated(Exception):
    pass


def _repeated_name(body: bytes) -> Sequence[str | int]:
    """The name that stands twice; its path is not known to the parser, the name is enough to find it."""

    def refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        unique = dict(pairs)
        if len(unique) < len(pairs):
            raise _Repeated(Counter(name for name, _ in pairs).most_common(1)[0][0])
        return unique

    try:
        json.loads(body, object_pairs_hook=refuse_repeated)
    except _Repeated as repeated:
        return ("body", str(repeated))
    return ("body",)


def _explained(body: bytes, error: orjson.JSONDecodeError, max_depth: int) -> BadRequest:
    """Why orjson refused a body. Where a looser parser takes it, the place is a path, else an offset."""
    if error.msg.startswith("depth limit"):
        return _refusal(("body", error.pos), f"nested deeper than {max_depth}")
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return _refusal(("body", error.pos), f"not valid JSON: {error.msg.partition(': line')[0]}")
    for path, inner in _walk(value, max_depth):
        if isinstance(inner, float) and not math.isfinite(inner):
            return _refusal(path, "not a JSON number")
        if isinstance(inner, str) and _has_lone_surrogate(inner):
            return _refusal(path, "a string holds half of a surrogate pair")
        if isinstance(inner, dict) and any(map(_has_lone_surrogate, inner)):
            return _refusal(path, "a name holds half of a surrogate pair")
    return _refusal(("body", error.pos), f"not valid JSON: {error.msg.partition(': line')[0]}")


def _has_lone_surrogate(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)


def _refusal(path: Sequence[str | int], message: str) -> BadRequest:
    loc = [_shown(part) for part in path]
    return BadRequest(
        f"The body cannot be taken: {message} (at {'.'.join(map(str, loc))[:_SHOWN]}).",
        errors=[{"loc": loc, "message": message}],
    )


def _shown(part: str | int) -> str | int:
    """A part of a path that is safe to show: short, and valid UTF-8."""
    return part if isinstance(part, int) else part[:_SHOWN].encode("utf-8", "replace").decode()
