"""Events to their JSON line and back.

A line is what every listener gets, byte for byte: `type`, `seq` and `turn_id` first, then the event's fields,
and for a nested agent's event `agent` (if the event has none) and `parent_call_id` at the end.
"""

from dataclasses import fields

from app.domain.events import EVENT_CLASSES, Event, LogEntry, MessageDelta, Origin
from app.domain.ids import TurnId
from app.domain.json_types import JsonObject
from app.store import json_text

FieldNames = tuple[tuple[str, str], ...]
"""Pairs of an attribute and its name on the wire."""


def _field_names(cls: type[Event]) -> FieldNames:
    aliases: dict[str, str] = getattr(cls, "ALIASES", {})
    return tuple((f.name, aliases.get(f.name, f.name)) for f in fields(cls) if f.name != "type")


def _type_of(cls: type[Event]) -> str:
    """Read from the field: in a class with slots the attribute is the slot."""
    return next(str(f.default) for f in fields(cls) if f.name == "type")


_FIELDS: dict[type[Event], FieldNames] = {cls: _field_names(cls) for cls in EVENT_CLASSES}
_CLASSES: dict[str, type[Event]] = {_type_of(cls): cls for cls in EVENT_CLASSES}

# Valid in JSON as they are, but line ends to some SSE clients, which would split the frame. JSON holds them
# in strings alone, so that they can be escaped in the bytes.
_LINE_ENDS = (
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
    ("\u0085".encode(), b"\\u0085"),
)


def encoded(event: Event, origin: Origin | None = None, *, turn_id: TurnId, seq: int) -> LogEntry:
    """The event as it stands in the log: one line of valid JSON, whatever it holds. Never raises."""
    shown: JsonObject = {"type": event.type, "seq": seq, "turn_id": turn_id}
    if origin is None and isinstance(event, MessageDelta):  # what nearly every event is
        shown["item_id"], shown["delta"] = event.item_id, event.delta
    else:
        _show(event, origin, shown)
    line = json_text.encode(shown)
    if not line.isascii():
        for raw, escaped in _LINE_ENDS:
            line = line.replace(raw, escaped)
    return LogEntry(seq, event.type, line)


def _show(event: Event, origin: Origin | None, shown: JsonObject) -> None:
    for attribute, name in _FIELDS[type(event)]:
        shown[name] = getattr(event, attribute)
    if origin is not None:
        shown.setdefault("agent", origin.agent)
        shown["parent_call_id"] = origin.parent_call_id


def event_from_json(data: bytes) -> tuple[Event | None, Origin | None]:
    """The event that stands on a line, and its origin; no event if this version knows no such type."""
    shown = json_text.decode(data)
    cls = _CLASSES.get(shown["type"])
    if cls is None:
        return None, None
    parent_call_id = shown.get("parent_call_id")
    origin = None if parent_call_id is None else Origin(shown.get("agent") or "", parent_call_id)
    values = {attribute: shown.get(name) for attribute, name in _FIELDS[cls]}
    return cls(**values), origin
