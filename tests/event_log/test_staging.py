import json

import pytest

from app.domain.events import (
    Event,
    MessageCompleted,
    MessageDelta,
    Origin,
    ReasoningDelta,
    RefusalDelta,
    ToolCallDelta,
)
from app.domain.ids import TurnId
from app.event_log.staging import Staging
from tests.store.scene import item

NESTED = Origin("helper", "call_1")
OTHER = Origin("helper", "call_2")


def taken(*events: Event | tuple[Event, Origin | None]) -> list[tuple[int, str]]:
    """Number and delta of what comes out."""
    staging = Staging(TurnId("turn_1"), 5)
    for one in events:
        event, origin = one if isinstance(one, tuple) else (one, None)
        staging.add(event, origin, ())
    return [(entry.seq, json.loads(entry.data).get("delta")) for entry in staging.take().entries]


@pytest.mark.parametrize(
    "pieces",
    [
        [MessageDelta("i", "a"), MessageDelta("i", "b"), MessageDelta("i", "c")],
        [RefusalDelta("i", "a"), RefusalDelta("i", "b"), RefusalDelta("i", "c")],
        [ReasoningDelta("i", "text", "a"), ReasoningDelta("i", "text", "b"), ReasoningDelta("i", "text", "c")],
        [ToolCallDelta("c", "a"), ToolCallDelta("c", "b"), ToolCallDelta("c", "c")],
    ],
)
def test_adjacent_deltas_of_one_item_are_joined(pieces: list[Event]) -> None:
    assert taken(*pieces) == [(5, "abc")]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (MessageDelta("i", "a"), MessageDelta("j", "b")),
        (MessageDelta("i", "a"), RefusalDelta("i", "b")),
        (ReasoningDelta("i", "text", "a"), ReasoningDelta("i", "summary", "b")),
        (ToolCallDelta("c", "a"), ToolCallDelta("d", "b")),
    ],
)
def test_deltas_of_different_things_stay_apart(first: Event, second: Event) -> None:
    assert taken(first, second) == [(5, "a"), (6, "b")]


def test_deltas_of_different_origin_stay_apart() -> None:
    piece = MessageDelta("i", "a")

    assert len(taken(piece, (piece, NESTED), (piece, NESTED), (piece, OTHER))) == 3


def test_event_in_between_keeps_deltas_apart() -> None:
    piece = MessageDelta("i", "a")

    assert taken(piece, MessageCompleted("j", ""), piece) == [(5, "a"), (6, None), (7, "a")]


def test_what_was_taken_is_not_joined_to() -> None:
    staging = Staging(TurnId("turn_1"), 1)
    staging.add(MessageDelta("i", "a"), None, ())
    assert (staging.next_seq, staging.take().last_seq) == (2, 1)
    staging.add(MessageDelta("i", "b"), None, ())

    assert (staging.next_seq, staging.take().last_seq) == (3, 2)


def test_items_come_in_order_also_without_an_event() -> None:
    staging = Staging(TurnId("turn_1"), 1)
    staging.add_items([item("a")])
    staging.add(MessageDelta("i", "x"), None, [item("b"), item("c")])
    batch = staging.take()

    assert [new.id for new in batch.items] == ["a", "b", "c"]
    assert not staging
    assert staging.take().items == ()
