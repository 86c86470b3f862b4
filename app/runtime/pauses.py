"""What a run waits for, and how answers reach it: approvals and client tools are one mechanism.

A client tool is a function tool that needs approval and whose output is supplied when the turn goes on. The
SDK would run one state twice; that each answer is used once is the business of `turns`. What was decided with
`always` is a rule of ours, not the SDK's own, which forgets it within nested agents and at hosted tools.
"""

import json
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from agents import (
    FunctionTool,
    RunContextWrapper,
    RunState,
    ToolOutputFileContent,
    ToolOutputImage,
    ToolOutputText,
)
from agents.exceptions import UserError
from agents.items import ToolApprovalItem
from agents.tool_context import ToolContext
from pydantic import ValidationError

from app.domain.events import ApprovalDecided, ApprovalRequested
from app.domain.ids import CallId, new_approval_id
from app.domain.json_types import JsonObject
from app.domain.pause import Answers, Approval, Decision, DecisionKind, PendingCall, ToolOutput
from app.domain.turn import ClientTool
from app.runtime.observer import current_scope
from app.runtime.paused_state import Rule
from app.runtime.scope import RunFrame, TurnScope

NO_PARAMETERS: JsonObject = {"type": "object", "properties": {}, "additionalProperties": True}
NOT_APPROVED = "Tool execution was not approved."


def client_tool(tool: ClientTool) -> FunctionTool:
    """A tool that the caller runs: its call waits, and its output is what the caller sends.

    One that the policy forbids does not wait: it is blocked like any other.
    """
    return FunctionTool(
        name=tool.name,
        description=tool.description or "",
        params_json_schema=tool.parameters or NO_PARAMETERS,
        on_invoke_tool=_supplied_output,
        strict_json_schema=False,
        needs_approval=partial(_may_be_asked, tool.name),
    )


async def _may_be_asked(
    tool: str, context: RunContextWrapper[Any], arguments: JsonObject, call_id: str
) -> bool:
    frame = current_scope.get()
    if not isinstance(frame, RunFrame):
        return True
    return await frame.tool_denied(tool, call_id, json.dumps(arguments)) is None


async def _supplied_output(context: ToolContext[Any], arguments: str) -> Any:
    frame = current_scope.get()
    if not isinstance(frame, RunFrame):
        raise UserError("a client tool runs only in a turn")
    supplied = frame.turn.supplied[context.tool_call_id]
    if supplied.error is None:
        return _as_tool_output(supplied.output)
    call = frame.call(context.tool_call_id)
    if call is not None:
        call.raised = supplied.error
    return f"An error occurred while running the tool: {supplied.error}"


def _as_tool_output(output: Any) -> Any:
    """A list of the contract's content parts as the SDK's own; anything else as it is."""
    if not isinstance(output, list) or not output:
        return output
    parts = [_as_part(part) for part in output]
    return output if None in parts else parts


def _as_part(part: Any) -> ToolOutputText | ToolOutputImage | ToolOutputFileContent | None:
    fields = {k: v for k, v in part.items() if k != "type"} if isinstance(part, Mapping) else {}
    try:
        match isinstance(part, Mapping) and part.get("type"):
            case "input_text":
                return ToolOutputText(**fields)
            case "input_image":
                return ToolOutputImage(**fields)
            case "input_file":
                return ToolOutputFileContent(**fields)
            case _:
                return None
    except (ValidationError, TypeError):
        return None


class Rules:
    """What is decided without asking: everything under `auto`, else what was answered with `always`."""

    def __init__(self, *, auto: bool, kept: Iterable[Rule] = ()) -> None:
        self._auto = auto
        self._kept = {(rule.agent, rule.tool): rule for rule in kept}

    @property
    def kept(self) -> tuple[Rule, ...]:
        return tuple(self._kept.values())

    def keep(self, rule: Rule) -> None:
        self._kept[rule.agent, rule.tool] = rule

    def decision(self, approval: Approval) -> Decision | None:
        rule = self._kept.get((approval.agent, approval.tool))
        if rule is not None:
            kind: DecisionKind = "approve" if rule.decision == "approve" else "reject"
            return Decision(approval.approval_id, kind, rule.reason, call_id=approval.call_id)
        if self._auto:
            return Decision(approval.approval_id, "approve", call_id=approval.call_id)
        return None


class Interruptions:
    """The calls that a run state waits for."""

    def __init__(self, scope: TurnScope, state: RunState[Any], rules: Rules) -> None:
        self._scope = scope
        self._state = state
        self._rules = rules
        self._items = {_call_id(item): item for item in state.get_interruptions()}
        again = sorted(self._items.keys() & scope.decided)
        if again:
            raise UserError(f"the SDK asks again for what was decided: {', '.join(again)}")

    def decided_by_rule(self) -> bool:
        """Decide what needs no asking, and log it as if it had been asked; False if nothing was decided.

        What else waits stays: the SDK comes back with it once the decided tools have run.
        """
        decided = False
        for call_id, item in self._items.items():
            if self._is_clients(item):
                continue
            approval = _approval(call_id, item)
            decision = self._rules.decision(approval)
            if decision is not None:
                self.announce([approval])
                event = ApprovalDecided(approval.approval_id, call_id, decision.decision, decision.reason)
                self._scope.frame_of(call_id).emit(event)
                self._decide(item, decision)
                decided = True
        return decided

    def pending(self) -> tuple[tuple[Approval, ...], tuple[PendingCall, ...]]:
        """What waits: approvals for a person, client tools for the caller."""
        approvals: list[Approval] = []
        calls: list[PendingCall] = []
        for call_id, item in self._items.items():
            if self._is_clients(item):
                calls.append(PendingCall(CallId(call_id), item.name or "", _arguments(item)))
            else:
                approvals.append(_approval(call_id, item))
        return tuple(approvals), tuple(calls)

    def announce(self, approvals: Iterable[Approval]) -> None:
        for one in approvals:
            event = ApprovalRequested(one.approval_id, one.call_id, one.tool, one.agent, one.arguments)
            self._scope.frame_of(one.call_id).emit(event)

    def answer(self, answers: Answers) -> None:
        """Hand every answer to the state; what was decided was logged when it was."""
        for decision in answers.decisions:
            item = self._items.get(decision.call_id or "")
            if item is not None:
                self._decide(item, decision)
        for output in answers.outputs:
            item = self._items.get(output.call_id)
            if item is not None:
                self._supply(item, output)

    def _decide(self, item: ToolApprovalItem, decision: Decision) -> None:
        call_id = _call_id(item)
        self._scope.decided.add(call_id)
        if decision.always:
            self._rules.keep(Rule(item.agent.name, item.name or "", decision.decision, decision.reason))
        if decision.decision == "approve":
            if decision.arguments is not None:
                self._scope.edited_arguments[call_id] = json.dumps(decision.arguments)
            self._state.approve(item)
            return
        reason = decision.reason or NOT_APPROVED
        self._scope.rejections[call_id] = reason
        self._state.reject(item, rejection_message=reason)

    def _supply(self, item: ToolApprovalItem, output: ToolOutput) -> None:
        self._scope.decided.add(output.call_id)
        self._scope.supplied[output.call_id] = output
        self._state.approve(item)

    def _is_clients(self, item: ToolApprovalItem) -> bool:
        """Only the top agents have the caller's tools; a nested agent's tool of that name is its own."""
        return item.name in self._scope.client_tools and self._scope.frame_of(_call_id(item)).is_top


def _approval(call_id: str, item: ToolApprovalItem) -> Approval:
    return Approval(new_approval_id(), CallId(call_id), item.name or "", item.agent.name, _arguments(item))


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
