"""What a structured answer must look like: the caller's JSON schema, or the agent's own output type.

Both forgive one thing that models do although nobody asked: a Markdown fence around the JSON.
"""

import json
import re
from typing import Any

from agents import AgentOutputSchema, AgentOutputSchemaBase, ModelBehaviorError
from jsonschema.exceptions import best_match
from referencing.exceptions import Unresolvable

from app.domain.json_types import JsonObject
from app.runtime.fences import fenced
from app.runtime.json_schemas import TooMuchToCheck, errors_of


def without_fence(text: str) -> str:
    """The JSON inside a Markdown fence, or the text as it is."""
    inside = fenced(text)
    return text if inside is None else inside


class CallerSchema(AgentOutputSchemaBase):
    """The `output_schema` of a request."""

    def __init__(self, schema: JsonObject) -> None:
        self._schema = schema

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
            wrong = best_match(errors_of(value, self._schema))
        except (TooMuchToCheck, Unresolvable) as error:
            raise ModelBehaviorError(f"the output cannot be checked: {error}") from error
        except (ValueError, RecursionError) as error:
            raise ModelBehaviorError("the output is not JSON") from error
        if wrong is not None:
            raise ModelBehaviorError(f"the output does not fit the schema: {wrong.message[:200]}")
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
