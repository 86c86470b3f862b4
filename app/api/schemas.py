"""The bodies that callers send besides a turn's, and the shape of every answer, for the OpenAPI document.

Answers are made from the domain's own `as_json`, not through these models: they say what that JSON is, and a
test holds one against the other.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from app.domain.turn import (
    AgentName,
    CancelledBy,
    CancelMode,
    Metadata,
    TurnStatus,
)

ConversationIdText = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,128}$")]
GivenId = Annotated[str, StringConstraints(min_length=1, max_length=128)]
Reason = Annotated[str, StringConstraints(max_length=8192)]
Timestamp = Annotated[str, Field(json_schema_extra={"format": "date-time"}, description="RFC 3339, UTC.")]


# --- bodies -------------------------------------------------------------------------------------


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class NewConversation(Body):
    id: ConversationIdText | None = Field(None, description="Chosen by the caller; else one is made.")
    agent: AgentName | None = None
    metadata: Metadata = Field(default_factory=dict)
    items: list[dict[str, Any]] = Field(
        default_factory=list,
        description="An existing history: messages, reasoning, function calls with their outputs.",
    )


class ConversationChanges(Body):
    """What is absent stays as it is."""

    agent: AgentName | None = Field(None, description="Null: the service's default.")
    metadata: Metadata = Field(default_factory=dict, description="Replaces all of it.")


class ForkRequest(Body):
    after_turn: GivenId | None = Field(
        None, description="The history up to that turn; null: none of it; absent: all of it."
    )


class DecisionBody(Body):
    approval_id: GivenId
    decision: Literal["approve", "reject"]
    reason: Reason | None = Field(None, description="Why it is rejected; the model is told.")
    arguments: dict[str, Any] | None = Field(None, description="Instead of the model's own.")
    always: bool = Field(False, description="For this tool, the rest of the turn.")


class Continuing(Body):
    background: bool = Field(False, description="Answer 202 at once.")


class Decisions(Continuing):
    decisions: list[DecisionBody] = Field(min_length=1, max_length=128)


class ToolOutputBody(Body):
    call_id: GivenId
    output: Any = Field(description="Text, JSON, or a list of content parts.")
    error: Reason | None = Field(None, description="Why the tool failed.")


class ToolOutputs(Continuing):
    outputs: list[ToolOutputBody] = Field(min_length=1, max_length=128)


class ResumeRequest(Continuing):
    pause_id: GivenId


# --- answers ------------------------------------------------------------------------------------


class Shape(BaseModel):
    """Every field is there, null where it has no value. Clients ignore what they do not know."""

    model_config = ConfigDict(extra="forbid")


class TokenCountsShape(Shape):
    requests: int
    unreported_requests: int
    input_tokens: int = Field(description="The cached ones included.")
    cached_input_tokens: int
    uncached_input_tokens: int
    cache_write_tokens: int
    output_tokens: int
    reasoning_tokens: int
    total_tokens: int


class ModelUsageShape(TokenCountsShape):
    model_config = ConfigDict(extra="forbid", title="ModelUsage")
    model: str


class UsageShape(TokenCountsShape):
    model_config = ConfigDict(extra="forbid", title="Usage")
    context_tokens: int = Field(description="The total of the top agent's last call: how full the window is.")
    by_model: list[ModelUsageShape]


class TurnErrorShape(Shape):
    model_config = ConfigDict(extra="forbid", title="TurnError")
    code: str
    message: str
    retryable: bool
    retry_after_s: float | None


class ApprovalShape(Shape):
    model_config = ConfigDict(extra="forbid", title="Approval")
    approval_id: str
    call_id: str
    tool: str
    agent: str
    arguments: dict[str, Any] | None


class AskedApprovalShape(ApprovalShape):
    """An approval as it stands in the list of what waits."""

    model_config = ConfigDict(extra="forbid", title="AskedApproval")
    turn_id: str
    conversation_id: str
    user: str | None = Field(description="The caller's user whose turn asks.")
    pause_id: str
    status: Literal["pending", "approved", "rejected", "cancelled"]
    reason: str | None
    created_at: Timestamp
    expires_at: Timestamp
    decided_at: Timestamp | None


class PendingCallShape(Shape):
    model_config = ConfigDict(extra="forbid", title="PendingCall")
    call_id: str
    tool: str
    arguments: dict[str, Any] | None


class PauseShape(Shape):
    model_config = ConfigDict(extra="forbid", title="Pause")
    id: str
    reason: Literal["approval", "tool_output", "step"]
    approvals: list[ApprovalShape]
    tool_calls: list[PendingCallShape]
    expires_at: Timestamp


class CancelShape(Shape):
    model_config = ConfigDict(extra="forbid", title="Cancel")
    mode: CancelMode
    by: CancelledBy
    requested_at: Timestamp


class TurnSummaryShape(Shape):
    """A turn as it stands in lists and frames: without its input."""

    model_config = ConfigDict(extra="forbid", title="TurnSummary")
    id: str
    object: Literal["turn"]
    conversation_id: str
    agent: str
    last_agent: str | None
    model: str | None
    status: TurnStatus
    output_text: str
    output: Any = Field(description="Structured output, else null.")
    usage: UsageShape | None
    error: TurnErrorShape | None
    pause: PauseShape | None
    cancel: CancelShape | None
    runs: int
    last_event_id: int
    metadata: dict[str, str]
    created_at: Timestamp
    started_at: Timestamp | None
    ended_at: Timestamp | None


class TurnShape(TurnSummaryShape):
    """A turn, with its input."""

    model_config = ConfigDict(extra="forbid", title="Turn")
    input: str | list[dict[str, Any]]


class ConversationShape(Shape):
    model_config = ConfigDict(extra="forbid", title="Conversation")
    id: str
    object: Literal["conversation"]
    agent: str | None
    last_agent: str | None
    metadata: dict[str, str]
    created_at: Timestamp
    active_at: Timestamp


class StoredItemShape(Shape):
    model_config = ConfigDict(extra="forbid", title="StoredItem")
    id: str
    turn_id: str | None
    created_at: Timestamp
    superseded: bool
    item: dict[str, Any] = Field(description="The Responses-style item that the model sees.")


class PageShape(Shape):
    has_more: bool
    next: str | None = Field(description="The cursor of the following page.")


class TurnPage(PageShape):
    data: list[TurnSummaryShape]


class ConversationPage(PageShape):
    data: list[ConversationShape]


class ItemPage(PageShape):
    data: list[StoredItemShape]


class ApprovalPage(PageShape):
    data: list[AskedApprovalShape]


class ObjectPage(PageShape):
    data: list[dict[str, Any]]


class EventPage(Shape):
    events: list[dict[str, Any]]
    has_more: bool


class Health(Shape):
    status: Literal["ok"]


class Readiness(BaseModel):
    status: Literal["ready"]
    upstreams: list[dict[str, Any]] | None = Field(None, description="Only with `deep=1`.")


class ProblemError(Shape):
    loc: list[str | int] = Field(description="Where, from `body`, `query`, `path` or `header` inwards.")
    message: str


class Problem(BaseModel):
    """RFC 9457; some codes bring members of their own, as `turn_id`."""

    model_config = ConfigDict(extra="allow")
    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str | None
    errors: list[ProblemError] | None = None
