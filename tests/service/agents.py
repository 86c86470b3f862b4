"""The agents that the end-to-end tests register: `TURNWIRE_AGENTS=tests.service.agents:AGENTS`.

None names a model: each test sends the model name of its own scenario. `plain` is the default.
"""

from typing import Any

from agents import (
    Agent,
    GuardrailFunctionOutput,
    RunContextWrapper,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrailData,
    ToolOutputGuardrailData,
    function_tool,
    input_guardrail,
    output_guardrail,
    tool_input_guardrail,
    tool_output_guardrail,
)
from pydantic import BaseModel

from tests.service import tools
from tests.service.gates import pass_gate
from tests.service.pausing import PAUSING

FORBIDDEN = "forbidden"
"""Guardrails trip on this word; in the input, `gate=NAME` makes the parallel one wait at that gate first."""


class Answer(BaseModel):
    answer: str


@input_guardrail
async def watches_input(
    context: RunContextWrapper[Any], agent: Agent[Any], said: str | list[Any]
) -> GuardrailFunctionOutput:
    text = str(said)
    if "gate=" in text:
        await pass_gate(text.split("gate=")[-1].split()[0].strip("'\"}]"))
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered=FORBIDDEN in text)


@input_guardrail(run_in_parallel=False)
async def checks_input_first(
    context: RunContextWrapper[Any], agent: Agent[Any], said: str | list[Any]
) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered=FORBIDDEN in str(said))


@output_guardrail
async def watches_output(
    context: RunContextWrapper[Any], agent: Agent[Any], output: Any
) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered=FORBIDDEN in str(output))


@tool_input_guardrail
def watches_arguments(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
    if FORBIDDEN in str(data.context.tool_arguments):
        return ToolGuardrailFunctionOutput.reject_content("not with these arguments")
    return ToolGuardrailFunctionOutput.allow()


@tool_output_guardrail
def watches_result(data: ToolOutputGuardrailData) -> ToolGuardrailFunctionOutput:
    if "halt" in str(data.output):
        return ToolGuardrailFunctionOutput.raise_exception()
    return ToolGuardrailFunctionOutput.allow()


@function_tool(tool_input_guardrails=[watches_arguments], tool_output_guardrails=[watches_result])
def watched_lookup(q: str) -> str:
    """Looks a word up, under the eyes of two guardrails."""
    return f"{q}: found"


plain = Agent(name="plain", instructions="Answer.")
worker = Agent(
    name="worker",
    instructions="Use your tools.",
    tools=[
        tools.lookup,
        tools.get_time,
        tools.slow_async,
        tools.slow_sync,
        tools.stubborn,
        tools.limited,
        tools.breaks,
        tools.breaks_hard,
        tools.reports,
        tools.reports_by_context,
        tools.as_dict,
        tools.as_model,
        tools.as_dataclass,
        tools.big,
        tools.hoards,
    ],
)
keeper = Agent(name="keeper", instructions="Ask first.", tools=[tools.guarded, tools.lookup])
expert = Agent(
    name="expert", instructions="I am the expert.", handoff_description="Knows", tools=[tools.lookup]
)
desk = Agent(name="desk", instructions="Hand over.", handoffs=[expert])
helper = Agent(name="helper", instructions="I am the helper.", tools=[tools.lookup, tools.slow_async])
boss = Agent(
    name="boss",
    instructions="Delegate.",
    tools=[helper.as_tool(tool_name="ask_helper", tool_description="Ask the helper"), tools.lookup],
)
shaped = Agent(name="shaped", instructions="Answer in JSON.", output_type=Answer)
watchful = Agent(
    name="watchful", instructions="Answer.", input_guardrails=[watches_input], tools=[tools.lookup]
)
strict = Agent(name="strict", instructions="Answer.", input_guardrails=[checks_input_first])
discreet = Agent(name="discreet", instructions="Answer.", output_guardrails=[watches_output])
careful = Agent(name="careful", instructions="Answer.", tools=[watched_lookup])

AGENTS = [
    plain,
    worker,
    keeper,
    desk,
    expert,
    boss,
    helper,
    shaped,
    watchful,
    strict,
    discreet,
    careful,
    *PAUSING,
]
