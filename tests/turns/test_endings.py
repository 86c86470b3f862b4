"""What a turn leaves behind, for each way in which it can end."""

from dataclasses import replace

import pytest

from app.domain.conversation import NewItem
from app.domain.events import Event, MessageDelta, MessageStarted
from app.domain.ids import ItemId
from app.domain.json_types import Item
from app.domain.ledger import Ledger
from app.domain.ports import RunCompleted, RunFailed, RunStopped
from app.domain.turn import Cancel, CancelMode, Turn, TurnError, now
from app.turns.endings import Ending, ended, ending_of, remaining_items
from tests.sample_turn import sample_turn

INPUT = NewItem(
    ItemId("in"), {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
)
CALL = NewItem(
    ItemId("fc"), {"type": "function_call", "call_id": "c1", "name": "lookup", "arguments": "{}"}, "up"
)
OUTPUT = NewItem(ItemId("out"), {"type": "function_call_output", "call_id": "c1", "output": "42"})
REASONING = NewItem(ItemId("rs"), {"type": "reasoning", "summary": []}, "up")
FAILED = Ending("failed", TurnError("upstream_error", "it broke", retryable=True))


def cancelled(mode: CancelMode) -> Turn:
    return sample_turn(cancel=Cancel(mode, "caller", now()))


def showing(*texts: str) -> Ledger:
    ledger = Ledger()
    for number, text in enumerate(texts):
        events: list[Event] = [MessageStarted(f"m{number}", "assistant"), MessageDelta(f"m{number}", text)]
        for event in events:
            ledger.apply(event)
    return ledger


def items(left: tuple[tuple[NewItem, ...], bool]) -> list[Item]:
    return [new.item for new in left[0]]


def test_keep_leaves_the_input_the_finished_step_and_the_text_that_was_seen() -> None:
    left = remaining_items(cancelled("keep"), Ending("cancelled"), [INPUT, CALL, OUTPUT], showing("Hel"))
    assert items(left)[:3] == [INPUT.item, CALL.item, OUTPUT.item]
    message = items(left)[3]
    assert message["role"] == "assistant"
    assert message["content"] == [{"type": "output_text", "text": "Hel", "annotations": []}]
    assert "id" not in message
    assert not left[1]


def test_keep_gives_a_call_without_output_the_output_cancelled() -> None:
    left = remaining_items(cancelled("keep"), Ending("cancelled"), [INPUT, REASONING, CALL], Ledger())
    assert items(left)[-1] == {"type": "function_call_output", "call_id": "c1", "output": "cancelled"}


def test_keep_drops_reasoning_that_nothing_follows() -> None:
    left = remaining_items(cancelled("keep"), Ending("cancelled"), [INPUT, REASONING], showing("Hel"))
    assert [item.get("type") for item in items(left)] == ["message", "message"]


def test_rollback_leaves_nothing() -> None:
    left = remaining_items(cancelled("rollback"), Ending("cancelled"), [INPUT, CALL, OUTPUT], showing("Hel"))
    assert left == ((), True)


def test_a_turn_that_never_started_leaves_nothing() -> None:
    queued = replace(cancelled("keep"), status="queued", started_at=None)
    assert remaining_items(queued, Ending("cancelled"), [], Ledger()) == ((), True)


def test_a_failed_turn_that_showed_nothing_leaves_nothing() -> None:
    assert remaining_items(sample_turn(), FAILED, [INPUT], Ledger()) == ((), True)
    assert remaining_items(sample_turn(), FAILED, [INPUT, REASONING, CALL], Ledger()) == ((), True)


def test_a_failed_turn_keeps_its_input_with_a_finished_step() -> None:
    left = remaining_items(sample_turn(), FAILED, [INPUT, CALL, OUTPUT], Ledger())
    assert items(left) == [INPUT.item, CALL.item, OUTPUT.item]


def test_a_failed_turn_keeps_its_input_with_text_that_was_shown() -> None:
    left = remaining_items(sample_turn(), FAILED, [INPUT], showing("Part of an ans"))
    assert [item["role"] for item in items(left)] == ["user", "assistant"]


def test_an_input_guardrail_rolls_back_whatever_was_shown() -> None:
    tripped = replace(FAILED, rollback=True)
    assert remaining_items(sample_turn(), tripped, [INPUT], showing("five deltas")) == ((), True)


def test_a_completed_turn_keeps_what_was_recorded() -> None:
    assert remaining_items(sample_turn(), Ending("completed"), [INPUT, CALL, OUTPUT], Ledger())[0] == (
        INPUT,
        CALL,
        OUTPUT,
    )


@pytest.mark.parametrize("mode", ["keep", "rollback"])
def test_a_cancel_wins_over_a_run_that_completed_meanwhile(mode: CancelMode) -> None:
    ending = ending_of(RunCompleted("done", None), Cancel(mode, "caller", now()), shutting_down=False)
    assert ending.status == "cancelled"


def test_after_step_lets_the_last_step_complete_the_turn() -> None:
    cancel = Cancel("after_step", "caller", now())
    assert ending_of(RunCompleted("done", None), cancel, shutting_down=False).status == "completed"
    assert ending_of(RunStopped(), cancel, shutting_down=False).status == "cancelled"


def test_a_stop_by_the_service_is_a_failure_that_may_be_retried() -> None:
    ending = ending_of(RunStopped(), None, shutting_down=True)
    assert ending.error is not None
    assert (ending.error.code, ending.error.retryable) == ("shutting_down", True)


def test_a_failure_keeps_its_code() -> None:
    ending = ending_of(RunFailed(TurnError("timeout", "too long")), None, shutting_down=False)
    assert ending.error is not None
    assert ending.error.code == "timeout"


def test_the_final_row_is_terminal_and_names_its_last_event() -> None:
    final = ended(sample_turn(), FAILED, showing("Hel"), last_seq=9)
    assert (final.status, final.last_event_id, final.output_text) == ("failed", 9, "Hel")
    assert final.ended_at is not None
