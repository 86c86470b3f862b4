import json
from dataclasses import fields
from typing import Any

import pytest

from app.domain.events import (
    EVENT_CLASSES,
    AgentEnded,
    AgentHandedOff,
    Event,
    MessageDelta,
    Origin,
    RefusalDelta,
    ToolCallCompleted,
    WorkflowEvent,
)
from app.domain.ids import TurnId
from app.event_log import encoded, event_from_json

TURN = TurnId("turn_1")
NESTED = Origin("helper", "call_9")


def line(event: Event, origin: Origin | None = None) -> bytes:
    return encoded(event, origin, turn_id=TURN, seq=17).data


def sample(cls: type[Event]) -> Event:
    """An event of that class with a different value in each field."""
    values = {f.name: f"{f.name} of it" for f in fields(cls) if f.name != "type"}
    return cls(**values)  # type: ignore[arg-type]


def test_type_number_and_turn_stand_first_and_the_fields_in_their_order() -> None:
    assert line(MessageDelta("item_1", "Hel")) == (
        b'{"type":"message.delta","seq":17,"turn_id":"turn_1","item_id":"item_1","delta":"Hel"}'
    )


def test_entry_knows_its_number_and_type() -> None:
    entry = encoded(MessageDelta("item_1", "Hel"), turn_id=TURN, seq=17)

    assert (entry.seq, entry.type) == (17, "message.delta")


def test_fields_have_their_names_on_the_wire() -> None:
    shown = json.loads(line(AgentHandedOff("a", "b")))

    assert (shown["from"], shown["to"]) == ("a", "b")


def test_absent_values_are_null() -> None:
    shown = json.loads(line(ToolCallCompleted("call_1", "t", "success")))

    assert (shown["output"], shown["error"], shown["duration_ms"]) == (None, None, None)


def test_nested_event_names_its_agent_and_its_parent_call_at_the_end() -> None:
    assert line(MessageDelta("i", "x"), NESTED).endswith(b',"agent":"helper","parent_call_id":"call_9"}')


def test_nested_event_keeps_the_agent_it_has() -> None:
    shown = json.loads(line(AgentEnded("inner", None), NESTED))

    assert (shown["agent"], shown["parent_call_id"]) == ("inner", "call_9")


@pytest.mark.parametrize("cls", EVENT_CLASSES, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("origin", [None, NESTED])
def test_every_event_comes_back_from_its_line(cls: type[Event], origin: Origin | None) -> None:
    event = sample(cls)
    back, back_origin = event_from_json(line(event, origin))

    assert back == event
    assert (back_origin and back_origin.parent_call_id) == (origin and origin.parent_call_id)


def test_type_of_a_later_version_is_no_event() -> None:
    assert event_from_json(b'{"type":"message.sung","seq":1,"turn_id":"t"}') == (None, None)


def test_fields_of_a_later_version_are_ignored_and_missing_ones_are_none() -> None:
    event, _ = event_from_json(b'{"type":"message.delta","seq":1,"turn_id":"t","item_id":"i","pitch":3}')

    assert event == MessageDelta("i", None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    ["a\nb\r\nc", "\x00\x0b\x0c\x1c\x1d\x1e\x7f", "\u0085\u2028\u2029", "\u00a0\ufeff", '"\\\\u2028', "🙂 é"],
)
def test_any_text_is_one_line_for_every_kind_of_client_and_comes_back_whole(text: str) -> None:
    data = line(MessageDelta("i", text))

    assert len(data.decode().splitlines()) == 1
    assert json.loads(data)["delta"] == text


@pytest.mark.parametrize("text", ["\ud83d", "x\udc00y", "\ud83dx\ude42"])
def test_lone_surrogates_become_replacement_characters(text: str) -> None:
    shown = json.loads(line(MessageDelta("i", text)).decode("utf-8", "strict"))

    assert shown["delta"] == "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)


@pytest.mark.parametrize("payload", [object(), {1: {2}}, float("nan"), 2**99, {"\ud800": b"x"}, [[[[]]]]])
def test_payload_that_is_no_json_does_not_raise(payload: Any) -> None:
    shown = json.loads(line(WorkflowEvent("n", payload)))

    assert shown["name"] == "n"


@pytest.mark.parametrize(
    "text", ["", "a", 'quote " and \\', "é\n\t\0", "\u2028\u2029\x85", "\ud800 torn", "😀", "%d %b"]
)
def test_text_is_written_as_any_other_events_fields_are(text: str) -> None:
    as_text = json.loads(line(MessageDelta(f"i{text}", text)))
    as_any = json.loads(line(RefusalDelta(f"i{text}", text)))

    assert list(as_text) == list(as_any)
    assert as_text | {"type": None} == as_any | {"type": None}
    assert line(MessageDelta(f"i{text}", text)) == line(RefusalDelta(f"i{text}", text)).replace(
        b"refusal", b"message"
    )
