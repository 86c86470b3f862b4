"""What a structured answer must look like: the caller's JSON schema, or the agent's own output type.

Both forgive one thing that models do although nobody asked: a Markdown fence around the JSON.
"""

import json
import re
from typing import Any

from agents import AgentOutputSchema, AgentOutputSchemaBase, ModelBehaviorError
from jsonschema import Draft202012Validator, SchemaError, ValidationError, validators
from referencing import Registry

from app.domain.json_types import JsonObject
from app.errors import InvalidRequest

_FENCE = re.compile(r"\s*```[A-Za-z0-9_-]*[ \t]*\n(?P<body>.*?)\n?\s*```\s*", re.DOTALL)

# A caller's regular expression would run on our threads, and nothing bounds how long; patterns are left to
# the provider. References are resolved within the schema alone: nothing is ever fetched.
_Validator: Any = validators.extend(  # type: ignore[no-untyped-call]
    Draft202012Validator, {"pattern": None, "patternProperties": None}
)


def without_fence(text: str) -> str:
    """The JSON inside a Markdown fence, or the text as it is."""
    fenced = _FENCE.fullmatch(text)
    return fenced.group("body") if fenced else text


class CallerSchema(AgentOutputSchemaBase):
    """The `output_schema` of a request."""

    def __init__(self, schema: JsonObject) -> None:
        self._schema = schema
        self._validator = _Validator(schema, registry=Registry())

    def is_plain_text(self) -> bool:
        return False

    def name(self) -> str:
        title = re.sub(r"[^A-Za-z0-9_-]", "_", str(self._schema.get("title") or ""))[:64]
        return title or "output"

    def json_schema(self) -> dict[str, Any]:
        return self._schema

    def is_strict_json_schema(self) -> bool:
        """Strict mode refuses most schemas that people write by hand; we validate ourselves."""
        return False

    def validate_json(self, json_str: str) -> Any:
        try:
            value = json.loads(without_fence(json_str))
            self._validator.validate(value)
        except ValidationError as error:
            raise ModelBehaviorError(f"the output does not fit the schema: {error.message[:200]}") from error
        except (ValueError, RecursionError) as error:
            raise ModelBehaviorError("the output is not JSON") from error
        return value


class ForgivingSchema(AgentOutputSchemaBase):
    """An agent's own output type, taken out of its fence."""

    def __init__(self, inner: AgentOutputSchemaBase) -> None:
        self._inner = inner

    @classmethod
    def of(cls, output_type: Any) -> "ForgivingSchema":
        return cls(
            output_type if isinstance(output_type, AgentOutputSchemaBase) else AgentOutputSchema(output_type)
        )

    def is_plain_text(self) -> bool:
        return self._inner.is_plain_text()

    def name(self) -> str:
        return self._inner.name()

    def json_schema(self) -> dict[str, Any]:
        return self._inner.json_schema()

    def is_strict_json_schema(self) -> bool:
        return self._inner.is_strict_json_schema()

    def validate_json(self, json_str: str) -> Any:
        return self._inner.validate_json(without_fence(json_str))


def checked_schema(schema: JsonObject, loc: list[str | int]) -> JsonObject:
    """The schema, if it is one of an object. Raises InvalidRequest with the place of what is wrong."""
    if schema.get("type") != "object":
        raise InvalidRequest(
            "The schema's root must be an object.",
            errors=[{"loc": [*loc, "type"], "message": 'must be "object"'}],
        )
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        place = [*loc, *(part for part in error.absolute_path)]
        raise InvalidRequest(
            "The schema is not a JSON schema.", errors=[{"loc": place, "message": error.message[:200]}]
        ) from error
    return schema


def check_value(schema: JsonObject, value: JsonObject, loc: list[str | int]) -> None:
    """Raises InvalidRequest with each place below `loc` where `value` does not fit `schema`."""
    found = [
        {"loc": [*loc, *error.absolute_path], "message": error.message[:200]}
        for error in _Validator(schema, registry=Registry()).iter_errors(value)
    ]
    if found:
        raise InvalidRequest("The arguments do not fit the tool's schema.", errors=found)
