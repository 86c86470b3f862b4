"""The state of a paused run: the SDK's `RunState` as JSON, without the history that it would copy into itself.

The history before a turn cannot change while the turn is paused, so the state refers to its newest items by
number and digest and is put together again when the turn goes on; where the SDK has changed its input (a
handoff's input filter), the state keeps its own. A state that no longer fits is refused by `StateMismatch`.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from agents import Agent, RunContextWrapper, RunState
from agents.exceptions import AgentsException
from agents.items import ToolApprovalItem

from app.domain.history import CALL_TYPES
from app.domain.json_types import Item, JsonObject
from app.domain.usage import Usage
from app.runtime.models.past import expanded
from app.runtime.run_context import RunContext
from app.runtime.scope import RunFrame, TurnScope
from app.runtime.step import Step, ToolCall

VERSION = 1
PIECE = 100
"""Items."""
_CANONICAL = json.JSONEncoder(sort_keys=True, ensure_ascii=True, separators=(",", ":"), default=str)


class StateMismatch(Exception):
    """The paused state does not fit the agents, the history or the SDK of today."""


@dataclass(frozen=True, slots=True)
class PausedRun:
    """What an agent's run has open while it waits; `parent_call_id` is None for the top agent's."""

    parent_call_id: str | None
    agent: str
    step: Step | None

    @classmethod
    def of(cls, frame: RunFrame) -> "PausedRun":
        return cls(frame.parent_call_id, frame.agent, frame.step)


@dataclass(frozen=True, slots=True)
class Rule:
    """A decision that holds for a tool of an agent for the rest of the turn."""

    agent: str
    tool: str
    decision: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class Notes:
    """What we keep beside the SDK's state: `ids` were claimed in the turn, `rounds` are pauses for approval."""

    context: JsonObject
    runs: tuple[PausedRun, ...]
    ids: frozenset[str]
    rules: tuple[Rule, ...] = ()
    rounds: int = 0

    def go_on(self, scope: TurnScope) -> None:
        """Bring the runs of the turn back to where they were paused."""
        scope.ids.go_on(self.ids)
        for run in self.runs:
            nested = run.parent_call_id and scope.nested(run.parent_call_id, go_on=False)
            (nested or scope.top).go_on(run.agent, run.step)


def packed(state: RunState[Any], model_input: Sequence[Item], notes: Notes) -> bytes:
    """The last use of a state. Runs in a thread: a long run's is large."""
    given = state._original_input if isinstance(state._original_input, str) else expanded(state._original_input)
    by_reference = given == list(model_input)
    # Taken out before: the SDK would change what it writes, and compare unequal.
    state._original_input = [] if by_reference else given
    return orjson.dumps(
        {
            "version": VERSION,
            "sdk": state.to_json(context_serializer=lambda _: {}),
            "input": {"items": len(model_input), "digest": digest(model_input)} if by_reference else None,
            "context": notes.context,
            "runs": [_run_json(run) for run in notes.runs],
            "ids": sorted(notes.ids),
            "rules": [[rule.agent, rule.tool, rule.decision, rule.reason] for rule in notes.rules],
            "rounds": notes.rounds,
        },
        default=str,
    )


@dataclass(frozen=True, slots=True)
class Unpacked:
    """A stored state, taken apart; `restored` puts the history back."""

    sdk: JsonObject
    input: JsonObject | None
    notes: Notes

    def model_input(self, everything: Sequence[Item]) -> list[Item]:
        """The part of history and input that the model was given, whatever the setting says by now.

        Runs in a thread. Raises StateMismatch.
        """
        if self.input is None:
            return list(everything)
        given = list(everything[max(0, len(everything) - self.input["items"]) :])
        if digest(given) != self.input["digest"]:
            raise StateMismatch("the history before it has changed")
        return given

    async def restored(self, agent: Agent[Any], entries: list[Any], context: Any) -> RunState[Any]:
        """The SDK's state. Raises StateMismatch where the SDK refuses: an agent is gone, its format is newer.

        The input (items, or a past and items) is put in afterwards: the SDK would check and copy all of a long
        history on the loop.
        """
        try:
            # Strict, or the SDK would begin a nested agent anew whose state it cannot read.
            state = await RunState.from_json(
                agent,
                self.sdk,
                context_override=context,
                context_deserializer=lambda _: context,
                strict_context=True,
            )
        except (AgentsException, KeyError, TypeError, ValueError) as error:
            raise StateMismatch(str(error).rstrip(".")) from error
        if self.input is not None:
            state._original_input = entries
        if state._context is not None:
            state._context = RunContext.of(state._context)
        for waiting in state.get_interruptions():
            await _check_tool(waiting, context)
        return state


def unpacked(state: bytes) -> Unpacked:
    """Runs in a thread. Raises StateMismatch."""
    data = orjson.loads(state)
    if data.get("version") != VERSION:
        raise StateMismatch(f"it was stored by another release (version {data.get('version')!r})")
    notes = Notes(
        data["context"],
        tuple(_run_from_json(run) for run in data["runs"]),
        frozenset(data["ids"]),
        tuple(Rule(*rule) for rule in data["rules"]),
        data["rounds"],
    )
    return Unpacked(data["sdk"], data["input"], notes)


async def _check_tool(waiting: ToolApprovalItem, context: Any) -> None:
    """The SDK would tell the model that there is no such tool, of which a person has just approved a call."""
    raw = waiting.raw_item
    kind = raw.get("type") if isinstance(raw, dict) else raw.type
    if kind not in CALL_TYPES:
        return
    tools = await waiting.agent.get_all_tools(RunContextWrapper(context))
    if all(tool.name != waiting.name for tool in tools):
        raise StateMismatch(f"{waiting.agent.name!r} has no tool {waiting.name!r} any more")


def digest(items: Sequence[Item]) -> str:
    """Of the items as one JSON text, made in pieces: while one is made, nothing else runs in the process."""
    hashed = hashlib.sha256(b"[")
    for start in range(0, len(items), PIECE):
        piece = _CANONICAL.encode(items[start : start + PIECE])
        hashed.update(piece[1:-1].encode())
        hashed.update(b"," if start + PIECE < len(items) else b"")
    hashed.update(b"]")
    return hashed.hexdigest()


def _run_json(run: PausedRun) -> JsonObject:
    return {
        "parent_call_id": run.parent_call_id,
        "agent": run.agent,
        "step": run.step and _step_json(run.step),
    }


def _run_from_json(data: JsonObject) -> PausedRun:
    step = data["step"] and _step_from_json(data["step"])
    return PausedRun(data["parent_call_id"], data["agent"], step)


def _step_json(step: Step) -> JsonObject:
    return {
        "number": step.number,
        "agent": step.agent,
        "usage": step.usage_json(),
        "calls": [
            {
                "call_id": call.call_id,
                "tool": call.tool,
                "item": call.item,
                "executor": call.executor,
                "ended": call.ended,
            }
            for call in step.calls.values()
        ],
    }


def _step_from_json(data: JsonObject) -> Step:
    step = Step(data["number"], data["agent"], responded=True)
    step.calls = {call["call_id"]: ToolCall(**call) for call in data["calls"]}
    if data["usage"]:
        step.add_usage(Usage.from_json(data["usage"]))
    return step
