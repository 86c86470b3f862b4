"""A turn: one exchange, from the caller's input until it ends.

    queued ──► running ──► completed
      │          │  ▲  ├──► failed
      │          ▼  │  └──► cancelled
      │        paused ─────► failed | cancelled
      └────────────────────► failed | cancelled

`TRANSITIONS` is the law; `advance` is the only way to move. The three terminal states never change again.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from app.domain.caller import Caller
from app.domain.ids import ConversationId, TurnId
from app.domain.json_types import JsonObject
from app.domain.pause import Pause
from app.domain.usage import NO_USAGE, Usage

TurnStatus = Literal["queued", "running", "paused", "completed", "failed", "cancelled"]
TerminalStatus = Literal["completed", "failed", "cancelled"]
CancelMode = Literal["keep", "rollback", "after_step"]
CancelledBy = Literal["caller", "conflict", "disconnect", "expiry", "deletion"]
ConflictPolicy = Literal["reject", "enqueue", "cancel", "rollback"]
DisconnectPolicy = Literal["continue", "cancel"]
ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]

TRANSITIONS: dict[TurnStatus, frozenset[TurnStatus]] = {
    "queued": frozenset({"running", "failed", "cancelled"}),
    "running": frozenset({"paused", "completed", "failed", "cancelled"}),
    "paused": frozenset({"running", "failed", "cancelled"}),
    "completed": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
}
TERMINAL: frozenset[TurnStatus] = frozenset(s for s, onward in TRANSITIONS.items() if not onward)
ACTIVE: frozenset[TurnStatus] = frozenset({"running", "paused"})
"""At most one turn of a conversation is in one of these: the database's own rule."""


class IllegalTransition(Exception):
    """A turn was asked to move where the table does not lead: a defect of ours, never of a caller."""


def advance(current: TurnStatus, to: TurnStatus) -> TurnStatus:
    """Return `to` if a turn that is `current` may become it; raise IllegalTransition otherwise."""
    if to not in TRANSITIONS[current]:
        raise IllegalTransition(f"a turn cannot go from {current!r} to {to!r}")
    return to


def now() -> datetime:
    return datetime.now(UTC)


def timestamp(at: datetime) -> str:
    """RFC 3339 in UTC with milliseconds: `2026-01-31T12:00:00.000Z`."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class TurnError:
    """Why a turn failed: one of section 10's codes and a message for a person, free of secrets."""

    code: str
    message: str
    retryable: bool = False
    retry_after_s: float | None = None

    def as_json(self) -> JsonObject:
        return {
            "code": self.code,
            "message": self.message,
            "retryable": self.retryable,
            "retry_after_s": self.retry_after_s,
        }

    @classmethod
    def from_json(cls, data: JsonObject) -> "TurnError":
        return cls(data["code"], data["message"], data["retryable"], data["retry_after_s"])


@dataclass(frozen=True, slots=True)
class Cancel:
    """A cancel that was asked for, whether or not the turn has ended yet."""

    mode: CancelMode
    by: CancelledBy
    requested_at: datetime

    def as_json(self) -> JsonObject:
        return {"mode": self.mode, "by": self.by, "requested_at": timestamp(self.requested_at)}

    @classmethod
    def from_json(cls, data: JsonObject) -> "Cancel":
        return cls(data["mode"], data["by"], datetime.fromisoformat(data["requested_at"]))


ToolName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
AgentName = Annotated[str, StringConstraints(min_length=1, max_length=128)]
ModelName = Annotated[str, StringConstraints(min_length=1, max_length=256)]
MetadataKey = Annotated[str, StringConstraints(min_length=1, max_length=64)]
MetadataValue = Annotated[str, StringConstraints(max_length=512)]
Metadata = Annotated[dict[MetadataKey, MetadataValue], Field(max_length=16)]


class ClientTool(BaseModel):
    """A tool that the caller runs itself: the turn pauses with the call and goes on with its output."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = Field(None, description="JSON schema of the arguments, an object.")


class TurnRequest(BaseModel):
    """The body that starts a turn. Absent fields fall back to the conversation, the agent, the settings."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    input: str | list[dict[str, Any]] = Field(description="Text, or a list of input items.")
    agent: AgentName | None = Field(None, description="A registered agent's name, or `@last`.")
    model: ModelName | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra"] | None = None
    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False)
    max_output_tokens: int | None = Field(None, ge=1)
    parallel_tool_calls: bool | None = None
    instructions: str | None = None
    output_schema: dict[str, Any] | None = None
    tools: list[ClientTool] = Field(default_factory=list, max_length=128)
    max_steps: int | None = Field(None, ge=1)
    timeout_s: float | None = Field(None, gt=0, allow_inf_nan=False)
    after_turn: str | None = Field(None, description="A turn of the conversation; null is from the start.")
    on_conflict: ConflictPolicy = "reject"
    on_disconnect: DisconnectPolicy = "continue"
    approvals: Literal["ask", "auto"] = "ask"
    stepwise: bool = False
    background: bool = False
    metadata: Metadata = Field(default_factory=dict)

    @property
    def edits_history(self) -> bool:
        """True if `after_turn` was given, also as null."""
        return "after_turn" in self.model_fields_set

    @property
    def effort(self) -> ReasoningEffort | None:
        """`max` and `ultra` mean `xhigh`."""
        match self.reasoning_effort:
            case "max" | "ultra":
                return "xhigh"
            case effort:
                return effort


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn as it is stored. `key` is the database's own number, in order of admission."""

    key: int
    id: TurnId
    conversation_key: int
    conversation_id: ConversationId
    caller: Caller
    status: TurnStatus
    agent: str
    model: str | None
    request: TurnRequest
    created_at: datetime
    last_agent: str | None = None
    output_text: str = ""
    output: Any = None
    usage: Usage = NO_USAGE
    error: TurnError | None = None
    pause: Pause | None = None
    cancel: Cancel | None = None
    runs: int = 0
    last_event_id: int = 0
    metadata: dict[str, str] = field(default_factory=dict)
    started_at: datetime | None = None
    ended_at: datetime | None = None
    trace_parent: str | None = None
    """The `traceparent` of the request that started it."""

    @property
    def ended(self) -> bool:
        return self.status in TERMINAL

    def as_json(self, *, with_input: bool) -> JsonObject:
        """The contract's turn object; `input` is left out in frames and lists."""
        shown: JsonObject = {
            "id": self.id,
            "object": "turn",
            "conversation_id": self.conversation_id,
            "agent": self.agent,
            "last_agent": self.last_agent,
            "model": self.model,
            "status": self.status,
        }
        if with_input:
            shown["input"] = self.request.input
        return shown | {
            "output_text": self.output_text,
            "output": self.output,
            "usage": self.usage.as_json(),
            "error": self.error and self.error.as_json(),
            "pause": self.pause and self.pause.as_json(),
            "cancel": self.cancel and self.cancel.as_json(),
            "runs": self.runs,
            "last_event_id": self.last_event_id,
            "metadata": self.metadata,
            "created_at": timestamp(self.created_at),
            "started_at": self.started_at and timestamp(self.started_at),
            "ended_at": self.ended_at and timestamp(self.ended_at),
        }
