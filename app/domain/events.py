"""The closed union of a turn's events (contract, section 5): facts, small, frozen, without behaviour.

An event does not know its number: `seq` and `turn_id` are the log's, see `LogEntry`. Field names are the
wire's; where one is a Python keyword, `ALIASES` gives the wire's name.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

from app.domain.json_types import JsonObject

Executor = Literal["server", "client", "provider"]
ToolStatus = Literal["success", "error", "blocked", "cancelled"]


@dataclass(frozen=True, slots=True)
class Origin:
    """The nested agent an event comes from, and the call of the tool that runs it."""

    agent: str
    parent_call_id: str


@dataclass(frozen=True, slots=True)
class TurnQueued:
    conversation_id: str
    position: int
    type: Literal["turn.queued"] = "turn.queued"


@dataclass(frozen=True, slots=True)
class TurnStarted:
    conversation_id: str
    agent: str
    run: int
    at: str
    type: Literal["turn.started"] = "turn.started"


@dataclass(frozen=True, slots=True)
class AgentStarted:
    agent: str
    type: Literal["agent.started"] = "agent.started"


@dataclass(frozen=True, slots=True)
class AgentEnded:
    agent: str
    output: Any
    type: Literal["agent.ended"] = "agent.ended"


@dataclass(frozen=True, slots=True)
class AgentHandedOff:
    from_agent: str
    to_agent: str
    type: Literal["agent.handed_off"] = "agent.handed_off"
    ALIASES: ClassVar[dict[str, str]] = {"from_agent": "from", "to_agent": "to"}


@dataclass(frozen=True, slots=True)
class StepStarted:
    step: int
    agent: str
    type: Literal["step.started"] = "step.started"


@dataclass(frozen=True, slots=True)
class StepCompleted:
    """`usage` is that model call's alone, null if the step made no call that reported any."""

    step: int
    agent: str
    usage: JsonObject | None
    type: Literal["step.completed"] = "step.completed"


@dataclass(frozen=True, slots=True)
class MessageStarted:
    item_id: str
    agent: str
    type: Literal["message.started"] = "message.started"


@dataclass(frozen=True, slots=True)
class MessageDelta:
    item_id: str
    delta: str
    type: Literal["message.delta"] = "message.delta"


@dataclass(frozen=True, slots=True)
class MessageCompleted:
    item_id: str
    text: str
    refusal: str | None = None
    partial: bool = False
    type: Literal["message.completed"] = "message.completed"


@dataclass(frozen=True, slots=True)
class MessageAnnotation:
    item_id: str
    annotation: JsonObject
    type: Literal["message.annotation"] = "message.annotation"


@dataclass(frozen=True, slots=True)
class RefusalDelta:
    item_id: str
    delta: str
    type: Literal["refusal.delta"] = "refusal.delta"


@dataclass(frozen=True, slots=True)
class ReasoningStarted:
    item_id: str
    agent: str
    type: Literal["reasoning.started"] = "reasoning.started"


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    item_id: str
    kind: Literal["summary", "text"]
    delta: str
    type: Literal["reasoning.delta"] = "reasoning.delta"


@dataclass(frozen=True, slots=True)
class ReasoningCompleted:
    item_id: str
    text: str
    partial: bool = False
    type: Literal["reasoning.completed"] = "reasoning.completed"


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    item_id: str
    call_id: str
    tool: str
    agent: str
    type: Literal["tool_call.started"] = "tool_call.started"


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    call_id: str
    delta: str
    type: Literal["tool_call.delta"] = "tool_call.delta"


@dataclass(frozen=True, slots=True)
class ToolCallRequested:
    """`arguments` is the object, or null with the raw text if it is not a JSON object."""

    call_id: str
    tool: str
    agent: str
    executor: Executor
    arguments: JsonObject | None
    arguments_text: str | None = None
    type: Literal["tool_call.requested"] = "tool_call.requested"


@dataclass(frozen=True, slots=True)
class ToolCallCompleted:
    call_id: str
    tool: str
    status: ToolStatus
    output: Any = None
    output_truncated: bool = False
    error: str | None = None
    duration_ms: int | None = None
    type: Literal["tool_call.completed"] = "tool_call.completed"


@dataclass(frozen=True, slots=True)
class ApprovalRequested:
    approval_id: str
    call_id: str
    tool: str
    agent: str
    arguments: JsonObject | None
    type: Literal["approval.requested"] = "approval.requested"


@dataclass(frozen=True, slots=True)
class ApprovalDecided:
    approval_id: str
    call_id: str
    decision: Literal["approve", "reject"]
    reason: str | None = None
    type: Literal["approval.decided"] = "approval.decided"


@dataclass(frozen=True, slots=True)
class ArtifactCreated:
    artifact_id: str
    name: str
    media_type: str
    size: int
    url: str
    type: Literal["artifact.created"] = "artifact.created"


@dataclass(frozen=True, slots=True)
class HistoryCompacting:
    type: Literal["history.compacting"] = "history.compacting"


@dataclass(frozen=True, slots=True)
class HistoryCompacted:
    items_before: int
    items_after: int
    summary_item_id: str | None
    context_tokens: int | None
    model: str | None
    usage: JsonObject | None
    type: Literal["history.compacted"] = "history.compacted"


@dataclass(frozen=True, slots=True)
class WorkflowEvent:
    name: str
    data: Any
    type: Literal["workflow.event"] = "workflow.event"


@dataclass(frozen=True, slots=True)
class Warned:
    """Something was retried, dropped or shortened; the turn goes on."""

    code: str
    message: str
    type: Literal["warning"] = "warning"


@dataclass(frozen=True, slots=True)
class TurnPaused:
    turn: JsonObject
    type: Literal["turn.paused"] = "turn.paused"


@dataclass(frozen=True, slots=True)
class TurnResumed:
    reason: str
    run: int
    type: Literal["turn.resumed"] = "turn.resumed"


@dataclass(frozen=True, slots=True)
class TurnCompleted:
    turn: JsonObject
    type: Literal["turn.completed"] = "turn.completed"


@dataclass(frozen=True, slots=True)
class TurnFailed:
    turn: JsonObject
    type: Literal["turn.failed"] = "turn.failed"


@dataclass(frozen=True, slots=True)
class TurnCancelled:
    turn: JsonObject
    type: Literal["turn.cancelled"] = "turn.cancelled"


Event = (
    TurnQueued
    | TurnStarted
    | AgentStarted
    | AgentEnded
    | AgentHandedOff
    | StepStarted
    | StepCompleted
    | MessageStarted
    | MessageDelta
    | MessageCompleted
    | MessageAnnotation
    | RefusalDelta
    | ReasoningStarted
    | ReasoningDelta
    | ReasoningCompleted
    | ToolCallStarted
    | ToolCallDelta
    | ToolCallRequested
    | ToolCallCompleted
    | ApprovalRequested
    | ApprovalDecided
    | ArtifactCreated
    | HistoryCompacting
    | HistoryCompacted
    | WorkflowEvent
    | Warned
    | TurnPaused
    | TurnResumed
    | TurnCompleted
    | TurnFailed
    | TurnCancelled
)
EVENT_CLASSES: tuple[type[Event], ...] = get_args(Event)
TERMINAL_TYPES = frozenset({"turn.completed", "turn.failed", "turn.cancelled"})
ENDING_TYPES = TERMINAL_TYPES | {"turn.paused"}
"""A stream ends right after one of these if nothing follows it in the log."""


@dataclass(slots=True)
class LogEntry:
    """One event as it stands in the log.

    `data` is the event's JSON object in UTF-8 on one line, `type`, `seq` and `turn_id` first: what every
    listener gets, byte for byte. `frames` holds what each wire protocol made of it, so that it is made once.
    """

    seq: int
    type: str
    data: bytes
    frames: dict[str, bytes] = field(default_factory=dict)
