"""What a run waits for, and how answers reach it: approvals and client tools are one mechanism.

A client tool is a function tool that needs approval and whose output is supplied when the turn goes on. The
SDK would run one state twice; that each answer is used once is the business of `turns`.
"""

import json
from typing import Any, Literal

from agents import FunctionTool, RunState
from agents.exceptions import UserError
from agents.items import ToolApprovalItem
from agents.tool_context import ToolContext

from app.domain.events import ApprovalDecided, ApprovalRequested
from app.domain.ids import ApprovalId, CallId, new_approval_id
from app.domain.json_types import JsonObject
from app.domain.pause import Answers, Approval, Decision, PendingCall, ToolOutput
from app.domain.turn import ClientTool
from app.runtime.observer import current_scope
from app.runtime.scope import RunFrame, TurnScope

NO_PARAMETERS: JsonObject = {"type": "object", "properties": {}, "additionalProperties": True}


def client_tool(tool: ClientTool) -> FunctionTool:
    """A tool that the caller runs: its call always waits, and its output is what the caller sends."""
    return FunctionTool(
        name=tool.name,
        description=tool.description or "",
        params_json_schema=tool.parameters or NO_PARAMETERS,
        on_invoke_tool=_supplied_output,
        strict_json_schema=False,
        needs_approval=True,
    )


async def _supplied_output(context: ToolContext[Any], arguments: str) -> Any:
    frame = current_scope.get()
    if not isinstance(frame, RunFrame):
        raise UserError("a client tool runs only in a turn")
    supplied = frame.turn.supplied[context.tool_call_id]
    if supplied.error is None:
        return supplied.output
    call = frame.call(context.tool_call_id)
    if call is not None:
        call.raised = supplied.error
    return f"An error occurred while running the tool: {supplied.error}"


class Interruptions:
    """The calls that a run state waits for."""

    def __init__(self, scope: TurnScope, state: RunState[Any]) -> None:
        self._scope = scope
        self._state = state
        self._items = {_call_id(item): item for item in state.get_interruptions()}

    def pending(self) -> tuple[tuple[Approval, ...], tuple[PendingCall, ...]]:
        """Announce and return what waits: approvals for a person, client tools for the caller."""
        approvals: list[Approval] = []
        calls: list[PendingCall] = []
        for call_id, item in self._items.items():
            if item.name in self._scope.client_tools:
                calls.append(PendingCall(CallId(call_id), item.name or "", _arguments(item)))
            else:
                approvals.append(self._announced(call_id, item))
        return tuple(approvals), tuple(calls)

    def approve_automatically(self, approvals: Literal["ask", "auto"]) -> bool:
        """Approve everything if that is what the turn asked for and no client tool waits."""
        names = {item.name for item in self._items.values()}
        if approvals != "auto" or names & self._scope.client_tools:
            return False
        for call_id, item in self._items.items():
            approval = self._announced(call_id, item)
            self._decided(call_id, approval.approval_id, "approve", None)
            self._state.approve(item)
        return True

    def answer(self, answers: Answers) -> None:
        """Hand every answer to the state; what was decided was logged when it was."""
        for decision in answers.decisions:
            call_id = decision.call_id or ""
            item = self._items.get(call_id)
            if item is not None:
                self._decide(item, decision)
        for output in answers.outputs:
            item = self._items.get(output.call_id)
            if item is not None:
                self._supply(item, output)

    def _decide(self, item: ToolApprovalItem, decision: Decision) -> None:
        call_id = _call_id(item)
        if decision.decision == "approve":
            if decision.arguments is not None:
                self._scope.edited_arguments[call_id] = json.dumps(decision.arguments)
            self._state.approve(item, always_approve=decision.always)
            return
        reason = decision.reason or "Tool execution was not approved."
        self._scope.rejections[call_id] = reason
        self._state.reject(item, always_reject=decision.always, rejection_message=reason)

    def _supply(self, item: ToolApprovalItem, output: ToolOutput) -> None:
        self._scope.supplied[output.call_id] = output
        self._state.approve(item)

    def _announced(self, call_id: str, item: ToolApprovalItem) -> Approval:
        frame = self._scope.frame_of(call_id)
        approval = Approval(
            new_approval_id(), CallId(call_id), item.name or "", item.agent.name, _arguments(item)
        )
        frame.emit(
            ApprovalRequested(approval.approval_id, call_id, approval.tool, approval.agent, approval.arguments)
        )
        return approval

    def _decided(
        self, call_id: str, approval_id: ApprovalId, decision: Literal["approve", "reject"], reason: str | None
    ) -> None:
        self._scope.frame_of(call_id).emit(ApprovalDecided(approval_id, call_id, decision, reason))


def _call_id(item: ToolApprovalItem) -> str:
    raw = item.raw_item
    if isinstance(raw, dict):
        return str(raw.get("call_id") or raw.get("id"))
    return str(getattr(raw, "call_id", None) or getattr(raw, "id", None))


def _arguments(item: ToolApprovalItem) -> JsonObject | None:
    try:
        parsed = json.loads(item.arguments or "{}")
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None
