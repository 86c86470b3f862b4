"""How turns end: from what a turn has done and how it stopped to its final row, its items and its last events.

Pure: a live turn, a paused one and one that a crash left behind end by the same functions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.domain.conversation import NewItem
from app.domain.events import Event, TurnCancelled, TurnCompleted, TurnFailed
from app.domain.history import CANCELLED_OUTPUT, has_finished_step, left_behind
from app.domain.ledger import Ledger
from app.domain.ports import RunCompleted, RunFailed, RunOutcome
from app.domain.turn import Cancel, TerminalStatus, Turn, TurnError, advance, now

SHUTTING_DOWN = TurnError(
    "shutting_down", "The service stopped before the turn ended. Send the request again.", retryable=True
)
INTERRUPTED = TurnError(
    "interrupted", "The service was interrupted while the turn ran. Send the request again.", retryable=True
)


@dataclass(frozen=True, slots=True)
class Ending:
    """`rollback`: leave nothing unless a step was finished; `text` is the string final output."""

    status: TerminalStatus
    error: TurnError | None = None
    rollback: bool = False
    text: str | None = None
    output: Any = None
    reason: str | None = None
    """Why calls that are still open end, for their events."""


def ending_of(outcome: RunOutcome, cancel: Cancel | None, *, shutting_down: bool) -> Ending:
    """What a run's outcome means for its turn. A cancel wins over everything but what was over before it."""
    at_once = cancel is not None and cancel.mode != "after_step"
    match outcome:
        case _ if at_once:
            return Ending("cancelled")
        case RunCompleted(text, output):
            return Ending("completed", text=text, output=output)
        case RunFailed(error, rollback):
            return Ending("failed", error, rollback, reason=error.message)
        case _ if shutting_down:
            return Ending("failed", SHUTTING_DOWN, reason="the service stopped")
        case _ if cancel is not None:
            return Ending("cancelled")
        case _:
            return Ending("failed", TurnError("internal", "The turn stopped for no known reason."))


def remaining_items(
    turn: Turn, ending: Ending, recorded: Sequence[NewItem], ledger: Ledger
) -> tuple[tuple[NewItem, ...], bool]:
    """The items that the turn leaves in history, and whether it ends as if it had never been."""
    shown = ledger.shown()
    if ending.status == "completed":
        return tuple(recorded), False
    if ending.status == "cancelled":
        rolled_back = turn.started_at is None or (turn.cancel is not None and turn.cancel.mode == "rollback")
    elif ending.rollback:
        rolled_back = not has_finished_step(recorded)
    else:
        # An answered pause counts as a step: a person saw the calls, and decided.
        rolled_back = not (has_finished_step(recorded) or shown or turn.runs > 1)
    if rolled_back:
        return (), True
    return tuple(left_behind(recorded, shown, output_for_open_calls=CANCELLED_OUTPUT)), False


def ended(turn: Turn, ending: Ending, ledger: Ledger, last_seq: int) -> Turn:
    """The turn's final row; its terminal event is number `last_seq`."""
    text = ending.text if ending.text is not None else ledger.output_text
    return replace(
        turn,
        status=advance(turn.status, ending.status),
        output_text=text,
        output=ending.output,
        usage=ledger.usage_so_far,
        last_agent=ledger.last_agent or turn.last_agent,
        error=ending.error,
        pause=None,
        ended_at=now(),
        last_event_id=last_seq,
    )


def terminal_event(turn: Turn) -> Event:
    shown = turn.as_json(with_input=False)
    match turn.status:
        case "completed":
            return TurnCompleted(shown)
        case "cancelled":
            return TurnCancelled(shown)
        case _:
            return TurnFailed(shown)
