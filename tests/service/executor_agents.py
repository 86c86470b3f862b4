"""Agents for what an executor has to bear: tools that say how it went, agents within agents and guardrails,
agents with a model of their own: `TURNWIRE_AGENTS=tests.service.executor_agents:AGENTS`."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from agents import (
    Agent,
    GuardrailFunctionOutput,
    Model,
    ModelResponse,
    ModelSettings,
    RunConfig,
    RunContextWrapper,
    Runner,
    Usage,
    function_tool,
    input_guardrail,
)
from agents.tracing import get_current_trace
from openai.types.responses import ResponseOutputMessage, ResponseOutputText
from openai.types.shared import Reasoning

from tests.service import tools


@function_tool
def says(text: str) -> str:
    """Returns the text as it is."""
    return text


@function_tool
def traced() -> str:
    """Says whether anything is traced."""
    return type(get_current_trace()).__name__


scout = Agent(name="scout", instructions="I am the scout.", tools=[traced])


@function_tool
async def ask_scout(q: str) -> str:
    """Runs another agent, with a configuration of its own."""
    result = await Runner.run(scout, q, run_config=RunConfig(tracing_disabled=False, workflow_name="scouting"))
    return str(result.final_output)


@input_guardrail
async def asks_a_judge(
    context: RunContextWrapper[Any], agent: Agent[Any], said: str | list[Any]
) -> GuardrailFunctionOutput:
    result = await Runner.run(Agent(name="judge", instructions="I am the judge."), "Is it good?")
    return GuardrailFunctionOutput(None, tripwire_triggered="bad" in str(result.final_output))


class Parrot(Model):
    """A model of an agent's own, without a stream."""

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        text = ResponseOutputText(type="output_text", text="I am my own model.", annotations=[])
        message = ResponseOutputMessage(
            id="msg_parrot", type="message", role="assistant", status="completed", content=[text]
        )
        return ModelResponse(
            [message], Usage(requests=1, input_tokens=3, output_tokens=5, total_tokens=8), None
        )

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


class Sulker(Model):
    """A model that fails while it is being stopped."""

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            raise RuntimeError("it was stopped") from error
        raise AssertionError

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


def speechless(context: RunContextWrapper[Any], agent: Agent[Any]) -> str:
    raise RuntimeError


AGENTS: list[Agent[Any]] = [
    Agent(name="talker", instructions="Answer.", tools=[says, tools.lookup]),
    Agent(
        name="stopper",
        instructions="Answer.",
        tools=[tools.lookup],
        tool_use_behavior="stop_on_first_tool",
    ),
    Agent(name="leader", instructions="Lead.", tools=[ask_scout]),
    Agent(name="judged", instructions="Answer.", input_guardrails=[asks_a_judge]),
    Agent(name="parrot", instructions="Answer.", model=Parrot()),
    Agent(name="sulker", instructions="Answer.", model=Sulker()),
    Agent(name="speechless", instructions=speechless),
    Agent(
        name="forgetful",
        instructions="Answer.",
        model_settings=ModelSettings(store=False, reasoning=Reasoning(effort="low")),
    ),
]
