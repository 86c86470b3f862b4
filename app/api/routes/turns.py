"""Turns: start, read, follow, cancel."""

from typing import Annotated, Literal

from fastapi import Body, Path, Query, Response

from app.api.answers import events_answer, page_answer, turn_answer, turn_headers
from app.api.attached import event_stream
from app.api.dependencies import (
    GivenAccept,
    GivenApi,
    GivenCaller,
    GivenPlace,
    GivenTraceParent,
    NewestFirst,
)
from app.api.documented import CANCELLED, EVENTS, START_EXAMPLES, STARTED, TURN, TURN_PAGE, problems
from app.api.negotiation import Form, choose
from app.api.posted import Posted
from app.api.routes.router import api_router
from app.api.schemas import ConversationIdText
from app.domain.ids import ConversationId
from app.domain.turn import CancelMode, TurnRequest, TurnStatus
from app.errors import OverrideForbidden
from app.turns.service import Attached, Cancelled

router = api_router("/v1", "turns")

EVENT_FORMS: tuple[Form, ...] = ("text/event-stream", "application/json")
Mode = Annotated[CancelMode | None, Query(description="What is kept; the service's own mode if absent.")]
StartBody = Annotated[TurnRequest, Body(openapi_examples=START_EXAMPLES)]
StartProblems = problems(400, 403, 404, 406, 409, 413, 415, 422, 429)


@router.post("/turns", responses={**STARTED, **StartProblems})
async def start_turn(request: StartBody, to: Posted, trace_parent: GivenTraceParent) -> Response:
    """Start a turn in a new conversation."""
    return await to.answer(lambda: _start(to, None, request, trace_parent), background=request.background)


@router.post("/conversations/{conversation_id}/turns", responses={**STARTED, **StartProblems})
async def start_turn_in_conversation(
    conversation_id: Annotated[ConversationIdText, Path(description="Created if the caller has none by it.")],
    request: StartBody,
    to: Posted,
    trace_parent: GivenTraceParent,
) -> Response:
    """Start a turn in a conversation."""
    chosen = ConversationId(conversation_id)
    return await to.answer(lambda: _start(to, chosen, request, trace_parent), background=request.background)


async def _start(
    to: Posted, conversation_id: ConversationId | None, request: TurnRequest, trace_parent: str | None
) -> Attached:
    api = to.api
    _refuse_overrides(request, api.forbidden_overrides)
    if request.approvals == "auto" and not api.may_auto_approve:
        raise _forbidden("approvals", "auto is not allowed without TURNWIRE_ALLOW_AUTO_APPROVE")
    return await api.turns.start(to.caller, conversation_id, request, to.idempotency, trace_parent=trace_parent)


def _refuse_overrides(request: TurnRequest, forbidden: frozenset[str]) -> None:
    """An override that says nothing (null, an empty list) is none."""
    for name in sorted(forbidden):
        if getattr(request, name) not in (None, []):
            raise _forbidden(name, "not allowed by TURNWIRE_OVERRIDES")


def _forbidden(name: str, why: str) -> OverrideForbidden:
    return OverrideForbidden(
        f"The field {name!r} may not be sent here.", errors=[{"loc": ["body", name], "message": why}]
    )


@router.get("/turns", responses={**TURN_PAGE, **problems(400, 422)})
async def list_turns(
    api: GivenApi,
    caller: GivenCaller,
    page: NewestFirst,
    status: TurnStatus | None = None,
    agent: Annotated[str | None, Query(max_length=128)] = None,
) -> Response:
    """The caller's turns, newest first: what runs, what waits."""
    found = await api.turns.turns(caller, page, status=status, agent=agent)
    return page_answer([turn.as_json(with_input=False) for turn in found.data], found)


@router.get("/turns/{turn_id}", responses={**TURN, **problems(404)})
async def read_turn(turn_id: str, api: GivenApi, caller: GivenCaller) -> Response:
    """The turn as it is now."""
    return turn_answer(await api.turns.turn(caller, turn_id))


@router.get("/turns/{turn_id}/events", responses={**EVENTS, **problems(400, 404, 406, 410, 422, 503)})
async def read_events(
    turn_id: str,
    api: GivenApi,
    caller: GivenCaller,
    accept: GivenAccept,
    place: GivenPlace,
    limit: Annotated[int, Query(ge=1, le=1000, description="Of events, in the JSON form.")] = 100,
) -> Response:
    """Replay what follows the given place and follow until the turn pauses or ends, or read a page as JSON."""
    chosen = choose(accept, EVENT_FORMS)
    attached = await api.turns.attach(caller, turn_id, place)
    if chosen == "text/event-stream":
        if place:
            api.metrics.listener_resumed()
        return event_stream(api, attached)
    entries, has_more = await api.turns.events(caller, turn_id, place, limit)
    return events_answer(entries, has_more, turn_headers(attached.turn))


@router.delete("/turns/{turn_id}", responses={**CANCELLED, **problems(404, 422)})
async def cancel_turn(turn_id: str, api: GivenApi, caller: GivenCaller, mode: Mode = None) -> Response:
    """Cancel a turn and wait until its history is settled. Idempotent."""
    return _cancel_answer(await api.turns.cancel(caller, turn_id, mode))


@router.delete("/conversations/{conversation_id}/turns/active", responses={**CANCELLED, **problems(404, 422)})
async def cancel_active_turn(
    conversation_id: str,
    api: GivenApi,
    caller: GivenCaller,
    mode: Mode = None,
    queued: Annotated[Literal["keep", "cancel"], Query(description="The turns that wait behind it.")] = "keep",
) -> Response:
    """The same for whoever knows only the conversation."""
    return _cancel_answer(await api.turns.cancel_active(caller, conversation_id, mode, queued))


def _cancel_answer(cancelled: Cancelled) -> Response:
    return turn_answer(cancelled.turn, 200 if cancelled.settled else 202)
