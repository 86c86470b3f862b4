"""Events to their JSON line and back.

A line is what every listener gets, byte for byte: `type`, `seq` and `turn_id` first, then the event's fields,
and for a nested agent's event `agent` (if the event has none) and `parent_call_id` at the end.
"""

from dataclasses import fields
from typing import Any

from app.domain.events import EVENT_CLASSES, Event, LogEntry, MessageDelta, Origin
from app.domain.ids import TurnId
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

_TEXT = b'{"type":"message.delta","seq":%d,"turn_id":"%b","item_id":%b,"delta":%b}'
"""What nearly every event is, so that it need not become a dictionary first."""

# Valid in JSON as they are, but line ends to some SSE clients, which would split the frame. JSON holds them
# in strings alone, so that they can be escaped in the bytes.
_LINE_ENDS = (
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
    ("\u0085".encode(), b"\\u0085"),
)


def encoded(event: Event, origin: Origin | None = None, *, turn_id: TurnId, seq: int) -> LogEntry:
    """The event as it stands in the log: one line of valid JSON, whatever it holds. Never raises."""
    return LogEntry(seq, event.type, _line(event, origin, turn_id, seq))


def _line(event: Event, origin: Origin | None, turn_id: TurnId, seq: int) -> bytes:
    if origin is None and type(event) is MessageDelta:
        item_id, delta = json_text.encode(event.item_id), json_text.encode(event.delta)
        line = _TEXT % (seq, turn_id.encode(), item_id, delta)
    else:
        line = json_text.encode(_shown(event, origin, turn_id, seq))
    if not line.isascii():
        for raw, escaped in _LINE_ENDS:
            line = line.replace(raw, escaped)
    return line


def _shown(event: Event, origin: Origin | None, turn_id: TurnId, seq: int) -> dict[str, Any]:
    shown: dict[str, Any] = {"type": event.type, "seq": seq, "turn_id": turn_id}
    for attribute, name in _FIELDS[type(event)]:
        shown[name] = getattr(event, attribute)
    if origin is not None:
        shown.setdefault("agent", origin.agent)
        shown["parent_call_id"] = origin.parent_call_id
    return shown


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
