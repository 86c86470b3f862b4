"""The JSON schema of the events, made from the dataclasses that are the events (contract, section 5)."""

from typing import Any

from pydantic import TypeAdapter

from app.domain.events import EVENT_CLASSES, Event
from app.domain.json_types import JsonObject

_LOG = {
    "seq": {
        "type": "integer",
        "minimum": 1,
        "description": "The event's number in its turn's log, without gaps.",
    },
    "turn_id": {"type": "string"},
}
_NESTED = {
    "parent_call_id": {
        "type": "string",
        "description": "The call of the tool that runs the nested agent from which the event comes.",
    },
}
_AGENT = {"agent": {"type": "string", "description": "The nested agent from which the event comes."}}


def event_schemas(ref: str) -> dict[str, JsonObject]:
    """A schema by name for each event, and `Event`, their union. `ref` is where schemas are, `#/$defs/`."""
    schemas = {cls.__name__: _schema(cls, ref) for cls in EVENT_CLASSES}
    mapping = {_type_name(schema): f"{ref}{name}" for name, schema in schemas.items()}
    union: JsonObject = {
        "title": "Event",
        "description": "Clients ignore types and fields that they do not know: v1 only adds.",
        "oneOf": [{"$ref": target} for target in mapping.values()],
        "discriminator": {"propertyName": "type", "mapping": mapping},
    }
    return {"Event": union, **schemas}


def document(turn_schemas: dict[str, JsonObject]) -> JsonObject:
    """A schema that validates one event. `turn_schemas` are `TurnSummary` and what it refers to."""
    schemas = event_schemas("#/$defs/")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schemas.pop("Event"),
        "$defs": {**schemas, **turn_schemas},
    }


def _schema(cls: type[Event], ref: str) -> JsonObject:
    made = TypeAdapter(cls).json_schema()
    aliases: dict[str, str] = getattr(cls, "ALIASES", {})
    fields = {aliases.get(name, name): _field(name, field, ref) for name, field in made["properties"].items()}
    kind = fields.pop("type")
    required = ["type", *_LOG, *fields]
    properties = {"type": kind, **_LOG, **fields, **({} if "agent" in fields else _AGENT), **_NESTED}
    schema: JsonObject = {
        "title": cls.__name__,
        "type": "object",
        "properties": properties,
        "required": required,
    }
    if cls.__doc__ and not cls.__doc__.startswith(f"{cls.__name__}("):
        schema["description"] = cls.__doc__.strip()
    return schema


def _field(name: str, field: JsonObject, ref: str) -> JsonObject:
    """Every field is there in every event, so none has a default; turns and token counts have their schema."""
    if name == "turn":
        return {"$ref": f"{ref}TurnSummary"}
    if name == "usage":
        return {"anyOf": [{"$ref": f"{ref}Usage"}, {"type": "null"}]}
    return {key: value for key, value in field.items() if key not in ("default", "title")}


def _type_name(schema: JsonObject) -> Any:
    return schema["properties"]["type"]["const"]
