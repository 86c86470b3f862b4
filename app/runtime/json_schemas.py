"""JSON schemas that came from callers and tools: are they sound, and does a value fit.

A schema is a program of whoever wrote it, and checking a value runs it on the event loop: references stay
within the schema, regular expressions are left to the provider, and the time is bounded.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from itertools import islice
from typing import Any

from jsonschema import Draft202012Validator, SchemaError, ValidationError, validators
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from app.domain.json_types import JsonObject
from app.errors import InvalidRequest

MAX_CHECK_S = 0.5
"""Of the processor's time. Alternatives that hold alternatives multiply without an end."""
MAX_ERRORS = 100
MAX_SCHEMA_VALUES = 10_000
"""Reading one takes a tenth of a millisecond for each."""
_deadline: ContextVar[float | None] = ContextVar("deadline", default=None)


class TooMuchToCheck(Exception):
    """A schema and a value that together take too long."""


def checked_schema(schema: JsonObject, loc: list[str | int]) -> JsonObject:
    """The schema, if it is one of an object. Raises InvalidRequest with the place of what is wrong."""
    if schema.get("type") != "object":
        raise _refused("The schema's root must be an object.", [*loc, "type"], 'must be "object"')
    if _size(schema) > MAX_SCHEMA_VALUES:
        raise _refused("The schema is too large.", loc, f"it holds more than {MAX_SCHEMA_VALUES} values")
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        place = [*loc, *error.absolute_path]
        raise _refused("The schema is not a JSON schema.", place, error.message[:200]) from error
    except RecursionError as error:
        raise _refused("The schema is not a JSON schema.", loc, "it nests too deep") from error
    if (reference := _dangling_reference(DRAFT202012.create_resource(schema))) is not None:
        message = f"{reference[:100]!r} leads nowhere in this schema"
        raise _refused("The schema refers to what it does not hold.", loc, message)
    return schema


def check_value(schema: JsonObject, value: JsonObject, loc: list[str | int]) -> None:
    """Raises InvalidRequest with each place below `loc` where `value` does not fit `schema`."""
    try:
        found = [
            {"loc": [*loc, *error.absolute_path], "message": error.message[:200]}
            for error in errors_of(value, schema)
        ]
    except (TooMuchToCheck, Unresolvable) as error:
        raise _refused("The arguments cannot be checked.", loc, str(error)) from error
    if found:
        raise InvalidRequest("The arguments do not fit the tool's schema.", errors=found)


def errors_of(value: Any, schema: JsonObject) -> list[ValidationError]:
    """Where the value does not fit, up to a hundred places. Raises TooMuchToCheck, Unresolvable."""
    token = _deadline.set(time.thread_time() + MAX_CHECK_S)
    try:
        return list(
            islice(_Validator(_without_dialects(schema), registry=Registry()).iter_errors(value), MAX_ERRORS)
        )
    finally:
        _deadline.reset(token)


def _refused(detail: str, loc: list[str | int], message: str) -> InvalidRequest:
    return InvalidRequest(detail, errors=[{"loc": loc, "message": message}])


def _size(value: Any) -> int:
    """How many values there are, up to the first beyond what is taken."""
    count, waiting = 0, [value]
    while waiting and count <= MAX_SCHEMA_VALUES:
        current = waiting.pop()
        count += 1
        if isinstance(current, dict | list):
            waiting += current.values() if isinstance(current, dict) else current
    return count


def _dangling_reference(schema: "Resource[Any]") -> str | None:
    """One found only while a value is checked would end a turn that has begun, and was paid for."""
    waiting = [(schema, Registry().with_resource("", schema).resolver(schema.id() or ""))]
    while waiting:
        resource, resolver = waiting.pop()
        for reference in _references(resource.contents):
            try:
                resolver.lookup(reference)
            except Unresolvable:
                return reference
        waiting += [(each, resolver.in_subresource(each)) for each in resource.subresources()]
    return None


def _references(schema: Any) -> list[str]:
    if not isinstance(schema, dict):
        return []
    return [schema[keyword] for keyword in ("$ref", "$dynamicRef") if keyword in schema]


# --- the validator ------------------------------------------------------------------------------


def _without_dialects(schema: Any) -> Any:
    """The library leaves our validator for its own, with patterns and without a bound, wherever a `$schema`
    that it knows stands, in whatever is reached by a reference too."""
    if isinstance(schema, dict):
        return {
            key: _without_dialects(value)
            for key, value in schema.items()
            if key != "$schema" or not isinstance(value, str)
        }
    return [_without_dialects(each) for each in schema] if isinstance(schema, list) else schema


def _timed(check: Callable[..., Any]) -> Callable[..., Any]:
    """A keyword's check that is not begun after the deadline."""

    def timed(*arguments: Any) -> Any:
        deadline = _deadline.get()
        if deadline is not None and time.thread_time() > deadline:
            raise TooMuchToCheck(f"this takes more than {MAX_CHECK_S:g} s")
        return check(*arguments)

    return timed


def _unique(validator: Any, wanted: Any, items: Any, schema: Any) -> Iterator[ValidationError]:
    """`uniqueItems` in one pass; the library compares each with each, and nothing ends it meanwhile."""
    if wanted and isinstance(items, list):
        texts = {json.dumps(_comparable(item), sort_keys=True) for item in items}
        if len(texts) < len(items):
            yield ValidationError("it holds the same item twice")


def _comparable(value: Any) -> Any:
    """1 and 1.0 are the same JSON number, at any depth."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _comparable(each) for key, each in value.items()}
    return [_comparable(each) for each in value] if isinstance(value, list) else value


_KEYWORDS = Draft202012Validator.VALIDATORS | {"uniqueItems": _unique}
_Validator: Any = validators.extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    {name: _timed(check) for name, check in _KEYWORDS.items()} | {"pattern": None, "patternProperties": None},
)
