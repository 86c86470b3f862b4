"""Tools as the service runs them: watched, bounded in time, and answering in JSON.

`observed` makes a copy of an SDK function tool whose invocation sets the call that code runs for, ends after
the time limit, and gives the model what a tool returned as JSON text, never as a Python repr.
"""

import asyncio
import copy
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any, cast

from agents import FunctionTool, RunContextWrapper
from agents.tool import _FailureHandlingFunctionToolInvoker
from agents.tool_context import ToolContext
from mcp.types import CallToolResult, TextContent

from app.domain.history import call_output
from app.runtime.containment import contained
from app.runtime.failures import redacted
from app.runtime.hooks import elapsed_ms
from app.runtime.observer import current_scope
from app.runtime.outputs import model_output
from app.runtime.policy import blocked_output
from app.runtime.scope import RunFrame, current_call

logger = logging.getLogger(__name__)

NOT_AN_OBJECT = "The arguments are not a JSON object: call the tool again with one."
MAX_ERROR_CHARS = 500


class ObservedInvoker:
    """Stands where a tool's `on_invoke_tool` stood; without a turn it only passes on."""

    asks_policy = True

    def __init__(self, tool: FunctionTool, timeout_s: float) -> None:
        self.original: Callable[[ToolContext[Any], str], Awaitable[Any]] = tool.on_invoke_tool
        self._name = tool.name
        # An agent as a tool is bounded by its turn; a tool with its own limit by that (the SDK's doing).
        unbounded = tool._is_agent_tool or tool.timeout_seconds is not None
        self._timeout_s = None if unbounded else timeout_s

    async def __call__(self, context: ToolContext[Any], arguments: str) -> Any:
        frame = current_scope.get()
        if not isinstance(frame, RunFrame):
            return await self.original(context, arguments)
        token = current_call.set(context.tool_call_id)
        try:
            return await self._invoke(frame, context, arguments)
        finally:
            current_call.reset(token)

    async def _invoke(self, frame: RunFrame, context: ToolContext[Any], arguments: str) -> Any:
        call = frame.call(context.tool_call_id)
        arguments = frame.turn.edited_arguments.get(context.tool_call_id, arguments)
        is_callers = context.tool_call_id in frame.turn.supplied
        if not is_callers and not _is_object(arguments):
            if call:
                call.raised = NOT_AN_OBJECT
            return NOT_AN_OBJECT
        if not is_callers:
            reason = await frame.tool_denied(self._name, context.tool_call_id, arguments)
            if reason is not None:
                return blocked_output(reason)
        try:
            async with asyncio.timeout(self._timeout_s) as limit:
                return model_output(await contained(self.original(context, arguments)))
        except TimeoutError as error:
            if not limit.expired():
                raise self._failed(frame, context, error) from error
            said = f"Tool {self._name!r} did not return within {self._timeout_s:g} seconds."
            if call:
                call.raised = said
            return said
        except asyncio.CancelledError:
            # The SDK's own time limit cancels too, and then says so to the model: see `RunWatcher.on_tool_end`.
            if call:
                call.interrupted = True
            raise
        except Exception as error:  # noqa: BLE001 - whatever a tool raises goes on to the SDK
            raise self._failed(frame, context, error) from error.__cause__

    def _failed(self, frame: RunFrame, context: ToolContext[Any], error: Exception) -> Exception:
        """A tool without a failure handler raised: its call ends here, and the run with it."""
        call = frame.call(context.tool_call_id)
        if call:
            call.raised = said(error)
            frame.tool_ended(
                call.call_id, None, call_output(call.item, f"error: {call.raised}"), elapsed_ms(call)
            )
        return error


class ObservedDecoratedInvoker(ObservedInvoker, _FailureHandlingFunctionToolInvoker):
    """The same for tools made by `@function_tool`: where an approval is decided call by call, the SDK asks this
    private class whether validation would change the arguments that the policy has seen, and then a person
    is asked. Of any other invoker it would not ask."""

    def __init__(self, tool: FunctionTool, timeout_s: float) -> None:
        ObservedInvoker.__init__(self, tool, timeout_s)
        original = cast(_FailureHandlingFunctionToolInvoker, self.original)
        _FailureHandlingFunctionToolInvoker.__init__(
            self, original._invoke_tool_impl, original._on_handled_error, function_tool=tool
        )

    def __agents_bind_function_tool__(self, function_tool: FunctionTool) -> "ObservedDecoratedInvoker":
        return self


def observed(tool: FunctionTool, *, timeout_s: float) -> FunctionTool:
    """A copy of `tool` as the service runs it; a copy of ours comes back as it is."""
    if isinstance(tool.on_invoke_tool, ObservedInvoker):
        return tool
    watched = copy.copy(tool)
    decorated = isinstance(watched.on_invoke_tool, _FailureHandlingFunctionToolInvoker)
    invoker = ObservedDecoratedInvoker if decorated else ObservedInvoker
    watched.on_invoke_tool = invoker(watched, timeout_s)
    return watched


def said(error: BaseException) -> str:
    """What an exception says, for the caller and the model: bounded, without keys and paths."""
    text = redacted(str(error)).strip()[:MAX_ERROR_CHARS]
    return text or type(error).__name__


def _is_object(arguments: str) -> bool:
    if not arguments.strip():
        return True
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False


async def observed_mcp_call(
    context: RunContextWrapper[Any], call: Callable[[], Awaitable[CallToolResult]]
) -> CallToolResult:
    """A call of an MCP server's tool: remembers for the call's event what went wrong."""
    frame = current_scope.get()
    call_id = context.tool_call_id if isinstance(context, ToolContext) else None
    known = frame.call(call_id) if isinstance(frame, RunFrame) and call_id else None
    if isinstance(frame, RunFrame) and isinstance(context, ToolContext):
        reason = await frame.tool_denied(context.tool_name, context.tool_call_id, context.tool_arguments)
        if reason is not None:
            return CallToolResult(content=[TextContent(type="text", text=blocked_output(reason))])
    token = current_call.set(call_id)
    try:
        result = await call()
    except Exception as error:
        if known:
            known.raised = said(error)
        raise
    finally:
        current_call.reset(token)
    if known and result.is_error:
        texts = [part.text for part in result.content if part.type == "text"]
        known.raised = redacted(" ".join(texts))[:MAX_ERROR_CHARS] or "the tool reports an error"
    return result
