"""The table is the law of a turn's life."""

from typing import get_args

import pytest
from pydantic import ValidationError

from app.domain.turn import ACTIVE, TERMINAL, TRANSITIONS, IllegalTransition, TurnRequest, TurnStatus, advance


def test_every_status_has_its_row() -> None:
    assert set(TRANSITIONS) == set(get_args(TurnStatus))


def test_a_terminal_status_never_changes_again() -> None:
    assert {"completed", "failed", "cancelled"} == TERMINAL
    for status in TERMINAL:
        for to in TRANSITIONS:
            with pytest.raises(IllegalTransition):
                advance(status, to)


def test_every_status_that_is_not_terminal_leads_to_an_end() -> None:
    for status in set(TRANSITIONS) - TERMINAL:
        assert TRANSITIONS[status] & TERMINAL


def test_active_is_what_holds_a_conversation() -> None:
    assert {"running", "paused"} == ACTIVE


def test_after_turn_as_null_is_not_the_same_as_absent() -> None:
    assert TurnRequest(input="x", after_turn=None).edits_history
    assert not TurnRequest(input="x").edits_history


@pytest.mark.parametrize("effort", ["max", "ultra"])
def test_efforts_beyond_the_scale_mean_its_top(effort: str) -> None:
    assert TurnRequest.model_validate({"input": "x", "reasoning_effort": effort}).effort == "xhigh"


@pytest.mark.parametrize(
    "body",
    [
        {"input": 5},
        {"input": "x", "colour": "red"},
        {"input": "x", "max_steps": 0},
        {"input": "x", "max_steps": "3"},
        {"input": "x", "temperature": float("nan")},
        {"input": "x", "metadata": {"k": 1}},
        {"input": "x", "metadata": {str(n): "v" for n in range(17)}},
        {"input": "x", "metadata": {"k" * 65: "v"}},
        {"input": "x", "tools": [{"name": "no spaces"}]},
    ],
)
def test_a_body_that_says_nothing_we_can_do_is_refused(body: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TurnRequest.model_validate(body)
