"""What a paused turn waits for: decisions, tool outputs, a go-ahead."""

from typing import Annotated, Literal

from fastapi import Query, Response

from app.api.answers import page_answer
from app.api.dependencies import GivenApi, GivenCaller, NewestFirst
from app.api.documented import APPROVAL_PAGE, CONTINUED, problems
from app.api.posted import Posted
from app.api.routes.router import api_router
from app.api.schemas import Decisions, ResumeRequest, ToolOutputs
from app.domain.ids import ApprovalId, CallId
from app.domain.pause import Decision, ToolOutput

router = api_router("/v1", "pauses")

Problems = problems(400, 404, 406, 409, 413, 415, 422, 429)


@router.post("/turns/{turn_id}/decisions", responses={**CONTINUED, **Problems})
async def decide(turn_id: str, body: Decisions, to: Posted) -> Response:
    """Approve or reject calls that wait."""
    decisions = [
        Decision(ApprovalId(d.approval_id), d.decision, d.reason, d.arguments, d.always) for d in body.decisions
    ]
    return await to.answer(
        lambda: to.api.turns.decide(to.caller, turn_id, decisions, to.idempotency), background=body.background
    )


@router.post("/turns/{turn_id}/tool_outputs", responses={**CONTINUED, **Problems})
async def give_tool_outputs(turn_id: str, body: ToolOutputs, to: Posted) -> Response:
    """Give the outputs of the caller's own tools."""
    outputs = [ToolOutput(CallId(o.call_id), o.output, o.error) for o in body.outputs]
    return await to.answer(
        lambda: to.api.turns.give_outputs(to.caller, turn_id, outputs, to.idempotency),
        background=body.background,
    )


@router.post("/turns/{turn_id}/resume", responses={**CONTINUED, **Problems})
async def resume(turn_id: str, body: ResumeRequest, to: Posted) -> Response:
    """Go on after a step."""
    return await to.answer(
        lambda: to.api.turns.resume(to.caller, turn_id, body.pause_id, to.idempotency),
        background=body.background,
    )


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
