"""What routes take from a request besides its path and body."""

import re
from hashlib import sha256
from typing import Annotated, Literal

import orjson
from anyio import to_thread
from fastapi import Depends, Header, Query, Request

from app.api.auth import CALLER, USER, single
from app.api.body import BIG, JsonRequest
from app.api.state import Api
from app.domain.caller import Caller
from app.domain.conversation import PageRequest
from app.domain.ports import IdempotencyKey
from app.errors import BadRequest, InvalidEventId

_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_EVENT_ID = re.compile(r"[0-9]{1,18}")
_TRACE_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_CONVERSATION_EVENT_ID = re.compile(r"([A-Za-z0-9_-]{1,128}):([0-9]{1,18})")


def _pattern(pattern: re.Pattern[str], *, or_empty: bool = False) -> dict[str, str]:
    """For the document only: what does not match is refused by us, with its own code."""
    return {"pattern": f"^({pattern.pattern})?$" if or_empty else f"^{pattern.pattern}$"}


async def _api(request: Request) -> Api:
    api: Api = request.state.api
    return api


async def _caller(
    request: Request,
    turnwire_user: Annotated[
        str | None,
        Header(
            alias="Turnwire-User",
            description="One of the caller's users: narrows what is seen to what is theirs.",
            json_schema_extra=_pattern(USER),
        ),
    ] = None,
) -> Caller:
    caller: Caller = request.scope[CALLER]
    return caller


async def _accept(request: Request) -> str | None:
    return ",".join(request.headers.getlist("accept")) or None


async def _idempotency(
    request: Request,
    idempotency_key: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key",
            description="The same key, path and JSON within 24 hours give the same turn: nothing runs twice.",
            json_schema_extra=_pattern(_KEY),
        ),
    ] = None,
) -> IdempotencyKey | None:
    if single(request.headers, "Idempotency-Key") is None or idempotency_key is None:
        return None
    if not _KEY.fullmatch(idempotency_key):
        raise BadRequest("Idempotency-Key must be 1 to 255 printable ASCII characters without spaces.")
    assert isinstance(request, JsonRequest)  # noqa: S101 - every POST is read by JsonRoute
    args = (request.url.path, request.value)
    big = len(request.raw) > BIG
    fingerprint = await to_thread.run_sync(_fingerprint, *args) if big else _fingerprint(*args)
    return IdempotencyKey(idempotency_key, fingerprint)


def _fingerprint(path: str, value: object) -> str:
    return sha256(path.encode() + b"\n" + orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()


async def _trace_parent(
    traceparent: Annotated[
        str | None,
        Header(description="W3C trace context: where traces are exported, the turn's spans stand under it."),
    ] = None,
) -> str | None:
    """One that is not valid is none: so W3C has it."""
    return traceparent if traceparent is not None and _TRACE_PARENT.fullmatch(traceparent) else None


LastEventId = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID",
        description="The id of the last event that was seen; empty: none.",
        json_schema_extra=_pattern(_EVENT_ID, or_empty=True),
    ),
]
After = Annotated[
    str | None,
    Query(
        description="The same, for whoever cannot send the header, which wins.",
        json_schema_extra=_pattern(_EVENT_ID),
    ),
]
ConversationEventId = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID",
        description="The id of the last event that was seen, `turn_id:number`; empty: none.",
        json_schema_extra=_pattern(_CONVERSATION_EVENT_ID, or_empty=True),
    ),
]


async def _last_event_id(request: Request, last_event_id: LastEventId = None) -> int | None:
    single(request.headers, "Last-Event-ID")
    return event_id(last_event_id, None)


async def _place(request: Request, last_event_id: LastEventId = None, after: After = None) -> int:
    single(request.headers, "Last-Event-ID")
    return event_id(last_event_id, after) or 0


async def _conversation_place(
    request: Request, last_event_id: ConversationEventId = None
) -> tuple[str, int] | None:
    single(request.headers, "Last-Event-ID")
    return conversation_event_id(last_event_id)


def event_id(header: str | None, query: str | None) -> int | None:
    """The event after which to go on. The header wins; an empty one is none. Raises InvalidEventId."""
    given = (header or "").strip() or query
    if given is None:
        return None
    if not _EVENT_ID.fullmatch(given):
        raise InvalidEventId("An event id is a whole number from 0.")
    return int(given)


def conversation_event_id(header: str | None) -> tuple[str, int] | None:
    """The turn and event after which to go on in a conversation's stream."""
    given = (header or "").strip()
    if not given:
        return None
    match = _CONVERSATION_EVENT_ID.fullmatch(given)
    if match is None:
        raise InvalidEventId("An event id of a conversation's stream is `turn_id:number`.")
    return match[1], int(match[2])


Limit = Annotated[int, Query(ge=1, le=100, description="How many at most.")]
Cursor = Annotated[str | None, Query(max_length=1024, description="`next` of the page before.")]
Order = Annotated[Literal["asc", "desc"], Query(description="From the oldest, or from the newest.")]


async def _ordered_page(limit: Limit = 20, cursor: Cursor = None, order: Order = "asc") -> PageRequest:
    return PageRequest(limit, cursor, order)


async def _newest_first(limit: Limit = 20, cursor: Cursor = None) -> PageRequest:
    return PageRequest(limit, cursor, "desc")


GivenApi = Annotated[Api, Depends(_api)]
GivenCaller = Annotated[Caller, Depends(_caller)]
GivenAccept = Annotated[str | None, Depends(_accept)]
GivenIdempotency = Annotated[IdempotencyKey | None, Depends(_idempotency)]
GivenLastEventId = Annotated[int | None, Depends(_last_event_id)]
GivenTraceParent = Annotated[str | None, Depends(_trace_parent)]
GivenConversationPlace = Annotated[tuple[str, int] | None, Depends(_conversation_place)]
GivenPlace = Annotated[int, Depends(_place)]
OrderedPage = Annotated[PageRequest, Depends(_ordered_page)]
NewestFirst = Annotated[PageRequest, Depends(_newest_first)]
