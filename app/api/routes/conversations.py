"""Conversations: the durable dialogues, their items and turns, and the stream of one for a second tab."""

from fastapi import Response

from app.api.answers import JsonAnswer, page_answer
from app.api.attached import conversation_stream
from app.api.dependencies import (
    GivenAccept,
    GivenApi,
    GivenCaller,
    GivenConversationPlace,
    NewestFirst,
    OrderedPage,
)
from app.api.documented import (
    CONVERSATION,
    CONVERSATION_EVENTS,
    CONVERSATION_PAGE,
    ITEM_PAGE,
    NEW_CONVERSATION,
    NO_CONTENT,
    TURN_PAGE,
    problems,
)
from app.api.negotiation import choose
from app.api.routes.router import api_router
from app.api.schemas import ConversationChanges, ForkRequest, NewConversation
from app.domain.conversation import Conversation
from app.domain.ids import ConversationId, TurnId

router = api_router("/v1/conversations", "conversations")


@router.post("", status_code=201, responses={**NEW_CONVERSATION, **problems(400, 404, 409, 413, 415, 422)})
async def create_conversation(
    api: GivenApi, caller: GivenCaller, body: NewConversation | None = None
) -> Response:
    """Create a conversation, perhaps with an existing history."""
    new = body or NewConversation(id=None, agent=None)
    chosen = None if new.id is None else ConversationId(new.id)
    made = await api.turns.create_conversation(
        caller, chosen, agent=new.agent, metadata=new.metadata, items=new.items
    )
    return _created(made)


@router.get("", responses={**CONVERSATION_PAGE, **problems(400, 422)})
async def list_conversations(api: GivenApi, caller: GivenCaller, page: NewestFirst) -> Response:
    """The caller's conversations, newest activity first."""
    found = await api.turns.conversations(caller, page)
    return page_answer([conversation.as_json() for conversation in found.data], found)


@router.get("/{conversation_id}", responses={**CONVERSATION, **problems(404)})
async def read_conversation(conversation_id: str, api: GivenApi, caller: GivenCaller) -> Response:
    return JsonAnswer((await api.turns.conversation(caller, conversation_id)).as_json())


@router.patch("/{conversation_id}", responses={**CONVERSATION, **problems(400, 404, 413, 415, 422)})
async def update_conversation(
    conversation_id: str, body: ConversationChanges, api: GivenApi, caller: GivenCaller
) -> Response:
    """Change its agent or its metadata."""
    changes = body.model_dump(exclude_unset=True)
    return JsonAnswer((await api.turns.update_conversation(caller, conversation_id, changes)).as_json())


@router.delete("/{conversation_id}", status_code=204, responses={**NO_CONTENT, **problems(404)})
async def delete_conversation(conversation_id: str, api: GivenApi, caller: GivenCaller) -> Response:
    """Cancel what is under way, then remove history, turns, events and artifacts."""
    await api.turns.delete_conversation(caller, conversation_id)
    return Response(status_code=204)


@router.get("/{conversation_id}/items", responses={**ITEM_PAGE, **problems(400, 404, 422)})
async def list_items(conversation_id: str, api: GivenApi, caller: GivenCaller, page: OrderedPage) -> Response:
    """The history, superseded items too."""
    found = await api.turns.items(caller, conversation_id, page)
    return page_answer([item.as_json() for item in found.data], found)


@router.get("/{conversation_id}/turns", responses={**TURN_PAGE, **problems(400, 404, 422)})
async def list_conversation_turns(
    conversation_id: str, api: GivenApi, caller: GivenCaller, page: OrderedPage
) -> Response:
    """Its turns, in order of admission."""
    found = await api.turns.turns(caller, page, conversation_id=conversation_id)
    return page_answer([turn.as_json(with_input=False) for turn in found.data], found)


@router.post(
    "/{conversation_id}/fork",
    status_code=201,
    responses={**NEW_CONVERSATION, **problems(400, 404, 413, 415, 422)},
)
async def fork_conversation(
    conversation_id: str, api: GivenApi, caller: GivenCaller, body: ForkRequest | None = None
) -> Response:
    """A new conversation with the history up to a turn, or all of it."""
    whole = body is None or "after_turn" not in body.model_fields_set
    after = None if body is None or body.after_turn is None else TurnId(body.after_turn)
    return _created(await api.turns.fork_conversation(caller, conversation_id, after_turn=after, whole=whole))


@router.get("/{conversation_id}/events", responses={**CONVERSATION_EVENTS, **problems(400, 404, 406, 410)})
async def follow_conversation(
    conversation_id: str,
    api: GivenApi,
    caller: GivenCaller,
    accept: GivenAccept,
    after: GivenConversationPlace,
) -> Response:
    """The turn under way from its first event, then every later turn, until the client leaves."""
    choose(accept, ("text/event-stream",))
    await api.turns.check_follow(caller, conversation_id, after)
    if after is not None:
        api.metrics.listener_resumed()
    return conversation_stream(api, api.turns.follow(caller, conversation_id, after))


def _created(conversation: Conversation) -> Response:
    location = {"Location": f"/v1/conversations/{conversation.id}", "X-Conversation-Id": conversation.id}
    return JsonAnswer(conversation.as_json(), 201, location)
