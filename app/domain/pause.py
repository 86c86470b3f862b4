"""A pause: what a turn waits for, and the answers that let it continue (contract, section 8)."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from app.domain.ids import ApprovalId, CallId, PauseId
from app.domain.json_types import JsonObject

PauseReason = Literal["approval", "tool_output", "step"]
DecisionKind = Literal["approve", "reject"]


@dataclass(frozen=True, slots=True)
class Approval:
    """A call that waits for a person."""

    approval_id: ApprovalId
    call_id: CallId
    tool: str
    agent: str
    arguments: JsonObject | None

    def as_json(self) -> JsonObject:
        return {
            "approval_id": self.approval_id,
            "call_id": self.call_id,
            "tool": self.tool,
            "agent": self.agent,
            "arguments": self.arguments,
        }


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A client tool's call that waits for the caller's output."""

    call_id: CallId
    tool: str
    arguments: JsonObject | None

    def as_json(self) -> JsonObject:
        return {"call_id": self.call_id, "tool": self.tool, "arguments": self.arguments}


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to one approval. `call_id` is the approval's: whoever stores an answer fills it in."""

    approval_id: ApprovalId
    decision: DecisionKind
    reason: str | None = None
    arguments: JsonObject | None = None
    always: bool = False
    call_id: CallId | None = None

    def as_json(self) -> JsonObject:
        return {
            "approval_id": self.approval_id,
            "decision": self.decision,
            "reason": self.reason,
            "arguments": self.arguments,
            "always": self.always,
            "call_id": self.call_id,
        }

    @classmethod
    def from_json(cls, data: JsonObject) -> "Decision":
        return cls(**data)


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """The caller's output of one client tool call: text, JSON, or a list of content parts."""

    call_id: CallId
    output: Any
    error: str | None = None

    def as_json(self) -> JsonObject:
        return {"call_id": self.call_id, "output": self.output, "error": self.error}

    @classmethod
    def from_json(cls, data: JsonObject) -> "ToolOutput":
        return cls(**data)


@dataclass(frozen=True, slots=True)
class Answers:
    """All that was answered to the pause so far; it is complete when nothing is left to wait for."""

    decisions: tuple[Decision, ...] = ()
    outputs: tuple[ToolOutput, ...] = ()
    steps: tuple[str, ...] = ()
    """Ids of pauses after a step that were resumed."""

    def as_json(self) -> JsonObject:
        return {
            "decisions": [d.as_json() for d in self.decisions],
            "outputs": [o.as_json() for o in self.outputs],
            "steps": list(self.steps),
        }

    @classmethod
    def from_json(cls, data: JsonObject | None) -> "Answers":
        if not data:
            return cls()
        return cls(
            tuple(Decision.from_json(d) for d in data["decisions"]),
            tuple(ToolOutput.from_json(o) for o in data["outputs"]),
            tuple(data.get("steps") or ()),
        )


@dataclass(frozen=True, slots=True)
class Pause:
    """What is left to wait for. `reason` is `approval` if approvals and outputs both wait."""

    id: PauseId
    reason: PauseReason
    expires_at: datetime
    approvals: tuple[Approval, ...] = field(default=())
    tool_calls: tuple[PendingCall, ...] = field(default=())

    def as_json(self) -> JsonObject:
        stamp = self.expires_at.astimezone(UTC).isoformat(timespec="milliseconds")
        return {
            "id": self.id,
            "reason": self.reason,
            "approvals": [a.as_json() for a in self.approvals],
            "tool_calls": [c.as_json() for c in self.tool_calls],
            "expires_at": stamp.replace("+00:00", "Z"),
        }

    @classmethod
    def from_json(cls, data: JsonObject) -> "Pause":
        return cls(
            id=data["id"],
            reason=data["reason"],
            expires_at=datetime.fromisoformat(data["expires_at"]),
            approvals=tuple(Approval(**a) for a in data["approvals"]),
            tool_calls=tuple(PendingCall(**c) for c in data["tool_calls"]),
        )


@dataclass(frozen=True, slots=True)
class Asked:
    """Something a turn has asked for in any of its pauses, and how it was answered.

    `id` is the approval's, the client call's or, after a step, the pause's. `answer` is what was answered, as
    it was sent; the answer's stream begins after event `answered_after`.
    """

    id: str
    kind: PauseReason
    call_id: CallId | None
    tool: str | None
    answer: JsonObject | None = None
    answered_after: int | None = None
