"""Agents and tools whose code does what no code should do, for a service that has to live with them."""

import asyncio
import sys
from typing import Any

from agents import (
    Agent,
    GuardrailFunctionOutput,
    RunContextWrapper,
    function_tool,
    input_guardrail,
    output_guardrail,
)

from tests.service.gates import pass_gate


class OwnBase(BaseException):
    """As some libraries have one, so that nobody catches it by mistake."""


@function_tool
def exits() -> str:
    """Ends the process, or so it thinks."""
    sys.exit(3)


@function_tool
async def exits_in_the_loop() -> str:
    """The same, on the event loop."""
    sys.exit(3)


@function_tool
async def exits_in_a_task() -> str:
    """The same, in a task of its own that nobody waits for."""
    begun = asyncio.get_running_loop().create_future()

    async def leave() -> None:
        begun.set_result(None)
        raise KeyboardInterrupt

    left = asyncio.create_task(leave())
    await begun
    await asyncio.wait({left})
    return str(left.exception())


@function_tool
def raises_a_base() -> str:
    """Raises what is no Exception."""
    raise OwnBase("no Exception")


@function_tool
async def clings(q: str) -> str:
    """Waits at the gate `q`, and takes no cancellation."""
    while True:
        try:
            await pass_gate(q)
        except asyncio.CancelledError:
            continue


@function_tool
def stops_iterating() -> str:
    """Raises what no future can hold."""
    raise StopIteration


def exiting_instructions(context: RunContextWrapper[Any], agent: Agent[Any]) -> str:
    sys.exit(4)


async def cancelled_instructions(context: RunContextWrapper[Any], agent: Agent[Any]) -> str:
    raise asyncio.CancelledError


@input_guardrail
async def exiting_guardrail(
    context: RunContextWrapper[Any], agent: Agent[Any], input: Any
) -> GuardrailFunctionOutput:
    sys.exit(5)


@input_guardrail
async def cancelled_guardrail(
    context: RunContextWrapper[Any], agent: Agent[Any], input: Any
) -> GuardrailFunctionOutput:
    raise asyncio.CancelledError


@output_guardrail
async def cancelled_check(
    context: RunContextWrapper[Any], agent: Agent[Any], output: Any
) -> GuardrailFunctionOutput:
    raise asyncio.CancelledError


TOOLS = [clings, exits, exits_in_the_loop, exits_in_a_task, raises_a_base, stops_iterating]
HOSTILE = [
    Agent(name="hostile", instructions="Use your tools.", tools=list(TOOLS)),
    Agent(name="exiting-instructions", instructions=exiting_instructions),
    Agent(name="cancelled-instructions", instructions=cancelled_instructions),
    Agent(name="exiting-guardrail", instructions="Answer.", input_guardrails=[exiting_guardrail]),
    Agent(name="cancelled-guardrail", instructions="Answer.", input_guardrails=[cancelled_guardrail]),
    Agent(name="cancelled-check", instructions="Answer.", output_guardrails=[cancelled_check]),
]
