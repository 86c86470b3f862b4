"""Paused runs of the real SDK. `python -m tests.runtime.paused` stores one for the SDK that is installed.

A stored state stays when the SDK is updated: what was paused under an old release is answered under a new one.
"""

import asyncio
from importlib.metadata import version
from pathlib import Path
from typing import Any

from agents import Agent, RunConfig, Runner, RunState, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

from app.domain.json_types import Item
from app.runtime.paused_state import Notes, PausedRun, Rule, packed
from app.runtime.step import Step, ToolCall

STATES = Path(__file__).parent / "states"
INPUT: list[Item] = [
    {"type": "message", "role": "user", "content": "Hello"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]},
    {"type": "message", "role": "user", "content": "What is kelp?"},
]
LIMITS = RunConfig(tracing_disabled=True)
CALL: Item = {"type": "function_call", "call_id": "call_1", "name": "guarded", "arguments": '{"q":"kelp"}'}


@function_tool(needs_approval=True)
def guarded(q: str) -> str:
    """Looks a word up, if a person approves."""
    return f"{q}: found"


def agents(model: ScriptedModel) -> Agent[Any]:
    """An agent that hands over to another one, which runs a third as a tool: two of them ask."""
    clerk = Agent[Any](name="clerk", model=model, tools=[guarded])
    guard = Agent[Any](name="guard", model=model, tools=[guarded, clerk.as_tool("ask_clerk", "Ask the clerk")])
    return Agent[Any](name="porter", model=model, handoffs=[guard])


async def paused(model_input: list[Item]) -> RunState[Any]:
    model = ScriptedModel(
        [
            [function_call("transfer_to_guard", {}, call_id="call_0")],
            [
                function_call("guarded", {"q": "kelp"}, call_id="call_1"),
                function_call("ask_clerk", {"input": "kelp?"}, call_id="call_2"),
            ],
            [function_call("guarded", {"q": "moss"}, call_id="call_3")],
        ]
    )
    result = Runner.run_streamed(agents(model), list[Any](model_input), run_config=LIMITS, context=None)
    async for _ in result.stream_events():
        pass
    assert len(result.interruptions) == 2
    return result.to_state()


def answers() -> ScriptedModel:
    """What the models say once both calls were approved."""
    return ScriptedModel([[assistant_message("The clerk has it.")], [assistant_message("Kelp is green.")]])


def notes() -> Notes:
    step = Step(2, "guard", responded=True, calls={"call_1": ToolCall("call_1", "guarded", CALL, "server")})
    runs = (PausedRun(None, "guard", step), PausedRun("call_2", "clerk", None))
    rule = Rule("guard", "guarded", "approve", None)
    return Notes({"visits": 1}, runs, frozenset({"call_1", "call_2"}), (rule,), rounds=1)


async def state_of(model_input: list[Item]) -> bytes:
    return packed(await paused(model_input), model_input, notes())


def store() -> None:
    state = asyncio.run(state_of(INPUT))
    (STATES / f"sdk-{version('openai-agents')}.json").write_bytes(state + b"\n")


if __name__ == "__main__":
    store()
