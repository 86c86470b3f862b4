"""The state of a paused run: the SDK's `RunState` as JSON, without the history that it would copy into itself.

The history before a turn cannot change while the turn is paused, so the state refers to it by a digest and is
put together again when the turn goes on; where the SDK has changed its input (a handoff's input filter), the
state keeps its own. A state that no longer fits is refused by `StateMismatch`.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from agents import Agent, RunState
from agents.exceptions import AgentsException

from app.domain.json_types import Item, JsonObject
from app.domain.usage import Usage
from app.runtime.step import Step, ToolCall

VERSION = 1


class StateMismatch(Exception):
    """The paused state does not fit the agents, the history or the SDK of today."""


def packed(sdk_state: JsonObject, model_input: Sequence[Item], context: JsonObject, step: Step | None) -> bytes:
    """Runs in a thread: a long run's state is large."""
    by_reference = sdk_state.get("original_input") == list(model_input)
    if by_reference:
        sdk_state = {**sdk_state, "original_input": []}
    return orjson.dumps(
        {
            "version": VERSION,
            "sdk": sdk_state,
            "input_digest": digest(model_input) if by_reference else None,
            "context": context,
            "step": step and _step_json(step),
        },
        default=str,
    )


@dataclass(frozen=True, slots=True)
class Unpacked:
    """A stored state, taken apart; `sdk_state` puts the history back."""

    sdk: JsonObject
    input_digest: str | None
    context: JsonObject
    step: Step | None

    def sdk_state(self, model_input: Sequence[Item]) -> JsonObject:
        """The SDK's state, whole. Runs in a thread. Raises StateMismatch."""
        if self.input_digest is None:
            return self.sdk
        if digest(model_input) != self.input_digest:
            raise StateMismatch("the history before it has changed")
        return {**self.sdk, "original_input": [dict(item) for item in model_input]}


def unpacked(state: bytes) -> Unpacked:
    """Runs in a thread. Raises StateMismatch."""
    data = orjson.loads(state)
    if data.get("version") != VERSION:
        raise StateMismatch(f"it was stored by another release (version {data.get('version')!r})")
    step = data["step"] and _step_from_json(data["step"])
    return Unpacked(data["sdk"], data["input_digest"], data["context"], step)


async def restored(agent: Agent[Any], sdk_state: JsonObject, context: Any) -> RunState[Any]:
    """Raises StateMismatch where the SDK refuses: an agent is gone, or its format is newer."""
    try:
        return await RunState.from_json(agent, sdk_state, context_override=context)
    except (AgentsException, KeyError, TypeError, ValueError) as error:
        raise StateMismatch(str(error)) from error


def digest(items: Sequence[Item]) -> str:
    canonical = json.dumps(list(items), sort_keys=True, ensure_ascii=True, separators=(",", ":"), default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()


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
