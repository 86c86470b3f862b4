"""What the SDK tells about a run: agents, handoffs, and the ends of tools.

`RunWatcher` is handed to every run inside a turn, nested ones too, before the hooks that a user's own code
brings. It reports to the frame of the run and never raises.
"""

import time
from collections.abc import Mapping
from typing import Any

from agents import (
    Agent,
    AgentHookContext,
    ItemHelpers,
    RunContextWrapper,
    RunHooks,
    Tool,
    default_tool_error_function,
)
from agents.items import ModelResponse, TResponseInputItem
from agents.tool_context import ToolContext

from app.domain.history import OUTPUT_TYPES
from app.runtime.outputs import plain_json
from app.runtime.scope import RunFrame
from app.runtime.step import ToolCall

MAX_REASON_CHARS = 500
DEFAULT_FAILURE = default_tool_error_function(RunContextWrapper(None), Exception())
"""What the SDK says for an agent as a tool, or a tool of an MCP server, that failed."""


class RunWatcher(RunHooks[Any]):
    """The hooks of one run; `also` are those that the run was started with."""

    def __init__(self, frame: RunFrame, also: RunHooks[Any] | None = None) -> None:
        self._frame = frame
        self._also = also or RunHooks()

    async def on_agent_start(self, context: AgentHookContext[Any], agent: Agent[Any]) -> None:
        self._frame.agent_started(agent.name)
        await self._also.on_agent_start(context, agent)

    async def on_agent_end(self, context: AgentHookContext[Any], agent: Agent[Any], output: Any) -> None:
        self._frame.agent_ended(agent.name, plain_json(output))
        await self._also.on_agent_end(context, agent, output)

    async def on_handoff(
        self, context: RunContextWrapper[Any], from_agent: Agent[Any], to_agent: Agent[Any]
    ) -> None:
        self._frame.handed_off(from_agent.name, to_agent.name)
        await self._also.on_handoff(context=context, from_agent=from_agent, to_agent=to_agent)

    async def on_llm_start(
        self,
        context: RunContextWrapper[Any],
        agent: Agent[Any],
        system_prompt: str | None,
        input_items: list[TResponseInputItem],
    ) -> None:
        self._frame.agent = agent.name
        self._close_answered(input_items)
        await self._also.on_llm_start(context, agent, system_prompt, input_items)

    async def on_llm_end(
        self, context: RunContextWrapper[Any], agent: Agent[Any], response: ModelResponse
    ) -> None:
        await self._also.on_llm_end(context, agent, response)

    async def on_tool_start(self, context: RunContextWrapper[Any], agent: Agent[Any], tool: Tool) -> None:
        call = self._call(context)
        if call is not None:
            call.started_at = time.monotonic()
        await self._also.on_tool_start(context, agent, tool)

    async def on_tool_end(
        self, context: RunContextWrapper[Any], agent: Agent[Any], tool: Tool, result: object
    ) -> None:
        if isinstance(context, ToolContext) and (call := self._call(context)) is not None:
            if call.raised is None and (call.interrupted or result == DEFAULT_FAILURE):
                call.raised = str(result)[:MAX_REASON_CHARS]
            if context.tool_call is not None and call.item["type"] == "function_call":
                item: Any = ItemHelpers.tool_call_output_item(context.tool_call, result)
            else:
                item = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": str(result)}
            self._frame.tool_ended(call.call_id, result, dict(item), elapsed_ms(call))
        await self._also.on_tool_end(context, agent, tool, result)

    def _call(self, context: RunContextWrapper[Any]) -> ToolCall | None:
        return self._frame.call(context.tool_call_id) if isinstance(context, ToolContext) else None

    def _close_answered(self, input_items: list[TResponseInputItem]) -> None:
        """Some calls get their output without a tool having run (rejected by a guardrail, no such tool): the
        SDK tells of them only by what it sends to the model next."""
        step = self._frame.step
        if step is None or step.done:
            return
        for item in reversed(input_items):
            if isinstance(item, Mapping) and item.get("type") in OUTPUT_TYPES:
                close_unrun(self._frame, dict(item))


def close_unrun(frame: RunFrame, output_item: dict[str, Any]) -> None:
    """End a call whose output came from elsewhere than its tool: it was blocked, or it was no tool of ours."""
    call = frame.call(output_item["call_id"])
    if call is None:
        return
    if call.raised is None and call.blocked is None:
        call.blocked = str(output_item.get("output") or "")[:MAX_REASON_CHARS]
    frame.tool_ended(call.call_id, output_item.get("output"), output_item, elapsed_ms(call))


def elapsed_ms(call: ToolCall) -> int | None:
    return None if call.started_at is None else round((time.monotonic() - call.started_at) * 1000)
