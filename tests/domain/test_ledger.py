"""The ledger knows what is open, what was shown and what it cost."""

from app.domain.events import (
    Event,
    MessageCompleted,
    MessageDelta,
    MessageStarted,
    Origin,
    ReasoningCompleted,
    ReasoningDelta,
    ReasoningStarted,
    StepCompleted,
    StepStarted,
    ToolCallCompleted,
    ToolCallRequested,
    ToolCallStarted,
    TurnPaused,
)
from app.domain.ledger import Ledger
from app.domain.usage import TokenCounts, Usage

NESTED = Origin("helper", "call_outer")


def ledger_after(*events: Event | tuple[Event, Origin]) -> Ledger:
    ledger = Ledger()
    for entry in events:
        event, origin = entry if isinstance(entry, tuple) else (entry, None)
        ledger.apply(event, origin)
    return ledger


def test_text_is_what_the_top_agent_said_with_a_blank_line_between_messages() -> None:
    ledger = ledger_after(
        MessageStarted("a", "main"),
        MessageDelta("a", "Hel"),
        MessageDelta("a", "lo"),
        MessageCompleted("a", "Hello"),
        (MessageStarted("n", "helper"), NESTED),
        (MessageDelta("n", "hidden"), NESTED),
        MessageStarted("b", "main"),
        MessageDelta("b", "again"),
    )
    assert ledger.output_text == "Hello\n\nagain"
    assert [m.item_id for m in ledger.shown()] == ["a", "b"]


def test_closing_closes_every_open_item_as_partial_with_the_text_so_far() -> None:
    ledger = ledger_after(
        StepStarted(1, "main"),
        ReasoningStarted("r", "main"),
        ReasoningDelta("r", "text", "hm"),
        MessageStarted("m", "main"),
        MessageDelta("m", "par"),
    )
    assert [event for event, _ in ledger.closing()] == [
        ReasoningCompleted("r", "hm", partial=True),
        MessageCompleted("m", "par", partial=True),
        StepCompleted(1, "main", None),
    ]


def test_an_open_call_ends_as_cancelled_with_the_reason_and_a_waiting_one_stays_open() -> None:
    events: list[Event] = [
        StepStarted(1, "main"),
        ToolCallRequested("c1", "lookup", "main", "server", {}),
        ToolCallRequested("c2", "ask", "main", "client", {}),
    ]
    ledger = ledger_after(*events)
    assert [e for e, _ in ledger.closing(reason="stopped", waiting=["c2"])] == [
        ToolCallCompleted("c1", "lookup", "cancelled", error="stopped")
    ]


def test_a_call_whose_arguments_never_came_whole_ends_as_cancelled_whatever_the_others_end_as() -> None:
    ledger = ledger_after(ToolCallStarted("i", "c1", "lookup", "main"))
    assert [e for e, _ in ledger.closing(call_status="error")] == [
        ToolCallCompleted("c1", "lookup", "cancelled")
    ]


def test_nested_items_are_closed_before_the_call_that_holds_them() -> None:
    ledger = ledger_after(
        StepStarted(1, "main"),
        ToolCallRequested("call_outer", "helper", "main", "server", {}),
        (StepStarted(1, "helper"), NESTED),
        (ToolCallRequested("inner", "lookup", "helper", "server", {}), NESTED),
    )
    closed = [(getattr(e, "call_id", e.type), origin) for e, origin in ledger.closing()]
    assert closed == [
        ("inner", NESTED),
        ("call_outer", None),
        ("step.completed", NESTED),
        ("step.completed", None),
    ]


def test_usage_sums_all_calls_and_only_the_top_agents_move_the_context() -> None:
    top = Usage.of_call("m", TokenCounts(requests=1, input_tokens=10, output_tokens=5, total_tokens=15))
    inner = Usage.of_call("small", TokenCounts(requests=1, input_tokens=90, output_tokens=9, total_tokens=99))
    ledger = ledger_after(
        StepStarted(1, "main"),
        (StepStarted(1, "helper"), NESTED),
        (StepCompleted(1, "helper", inner.as_json()), NESTED),
        StepCompleted(1, "main", top.as_json()),
    )
    shown = ledger.usage.as_json()
    assert shown is not None
    assert (shown["total_tokens"], shown["context_tokens"], shown["requests"]) == (114, 15, 2)
    assert {m["model"] for m in shown["by_model"]} == {"m", "small"}


def cost(tokens: int, model: str = "m") -> Usage:
    return Usage.of_call(model, TokenCounts(requests=1, total_tokens=tokens))


def test_what_a_model_call_has_cost_counts_before_its_step_is_completed_and_once() -> None:
    ledger = ledger_after(StepStarted(1, "main"))
    ledger.spend(cost(15), top_level=True)
    assert ledger.usage_so_far.as_json() == cost(15).as_json()
    assert ledger.usage.as_json() is None
    ledger.apply(StepCompleted(1, "main", cost(15).as_json()))
    assert ledger.usage_so_far.as_json() == ledger.usage.as_json() == cost(15).as_json()


def test_the_cost_of_a_step_that_is_open_over_a_pause_is_known_from_the_pause() -> None:
    before, open_cost = cost(15), cost(99, "small")
    paused = before.plus(open_cost, top_level=True)
    ledger = ledger_after(
        StepStarted(1, "main"),
        StepCompleted(1, "main", before.as_json()),
        StepStarted(2, "main"),
        TurnPaused({"usage": paused.as_json()}),
    )
    assert ledger.usage_so_far.as_json() == paused.as_json()
    ((closed, _),) = ledger.closing()
    assert isinstance(closed, StepCompleted)
    assert closed.usage == open_cost.as_json()
    ledger.apply(closed)
    assert ledger.usage.as_json() == ledger.usage_so_far.as_json() == paused.as_json()
