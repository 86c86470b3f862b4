"""What a paused turn waits for: decisions, tool outputs, a go-ahead."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import Depends, Query, Response

from app.api.answers import page_answer
from app.api.attached import answer, form
from app.api.dependencies import (
    GivenAccept,
    GivenApi,
    GivenCaller,
    GivenIdempotency,
    GivenLastEventId,
    NewestFirst,
)
from app.api.documented import APPROVAL_PAGE, CONTINUED, problems
from app.api.negotiation import Form
from app.api.routes.router import api_router
from app.api.routes.turns import known_answer
from app.api.schemas import Continuing, Decisions, ResumeRequest, ToolOutputs
from app.api.state import Api
from app.domain.caller import Caller
from app.domain.ids import ApprovalId, CallId
from app.domain.pause import Decision, ToolOutput
from app.domain.ports import IdempotencyKey
from app.turns.service import Attached

router = api_router("/v1", "pauses")

Problems = problems(400, 404, 406, 409, 413, 415, 422)


@dataclass(frozen=True, slots=True)
class _Continuation:
    """What the three POSTs that continue a turn have in common."""

    api: Api
    caller: Caller
    form: Form
    idempotency: IdempotencyKey | None
    last_event_id: int | None

    async def answer(self, body: Continuing, move: Callable[[], Awaitable[Attached]]) -> Response:
        known = await known_answer(self.api, self.caller, self.idempotency, self.last_event_id)
        return answer(self.api, known or await move(), self.form, background=body.background)


async def _continuation(
    api: GivenApi,
    caller: GivenCaller,
    accept: GivenAccept,
    idempotency: GivenIdempotency,
    last_event_id: GivenLastEventId,
) -> _Continuation:
    return _Continuation(api, caller, form(accept), idempotency, last_event_id)


Continuation = Annotated[_Continuation, Depends(_continuation)]


@router.post("/turns/{turn_id}/decisions", responses={**CONTINUED, **Problems})
async def decide(turn_id: str, body: Decisions, to: Continuation) -> Response:
    """Approve or reject calls that wait."""
    decisions = [
        Decision(ApprovalId(d.approval_id), d.decision, d.reason, d.arguments, d.always) for d in body.decisions
    ]
    return await to.answer(body, lambda: to.api.turns.decide(to.caller, turn_id, decisions, to.idempotency))


@router.post("/turns/{turn_id}/tool_outputs", responses={**CONTINUED, **Problems})
async def give_tool_outputs(turn_id: str, body: ToolOutputs, to: Continuation) -> Response:
    """Give the outputs of the caller's own tools."""
    outputs = [ToolOutput(CallId(o.call_id), o.output, o.error) for o in body.outputs]
    return await to.answer(body, lambda: to.api.turns.give_outputs(to.caller, turn_id, outputs, to.idempotency))


@router.post("/turns/{turn_id}/resume", responses={**CONTINUED, **Problems})
async def resume(turn_id: str, body: ResumeRequest, to: Continuation) -> Response:
    """Go on after a step."""
    return await to.answer(body, lambda: to.api.turns.resume(to.caller, turn_id, body.pause_id, to.idempotency))


@router.get("/approvals", responses={**APPROVAL_PAGE, **problems(400, 422)})
async def list_approvals(
    api: GivenApi,
    caller: GivenCaller,
    page: NewestFirst,
    status: Annotated[Literal["pending"], Query()] = "pending",
) -> Response:
    """What waits for a person, across the caller's conversations."""
    found = await api.turns.approvals(caller, page, status)
    return page_answer(found.data, found)
