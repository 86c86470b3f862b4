"""What each route may answer, for the OpenAPI document: routes return bytes, so the document is told.

Schemas are named here and defined in `openapi`, which knows the models behind the names.
"""

from http import HTTPStatus
from typing import Any

Responses = dict[int | str, dict[str, Any]]

_TURN_ID = "turn_5mQ2yWc8ZpX1vKd0RtLb7NfA"
_CONVERSATION_ID = "conv_9hJ3sTg6UoB4xMe2QrVa5WcE"
TURN_EXAMPLE: dict[str, Any] = {
    "id": _TURN_ID,
    "object": "turn",
    "conversation_id": _CONVERSATION_ID,
    "agent": "assistant",
    "last_agent": "assistant",
    "model": "gpt-5-mini",
    "status": "completed",
    "input": "Say hello.",
    "output_text": "Hello!",
    "output": None,
    "usage": {
        "requests": 1,
        "unreported_requests": 0,
        "input_tokens": 21,
        "cached_input_tokens": 0,
        "uncached_input_tokens": 21,
        "cache_write_tokens": 0,
        "output_tokens": 3,
        "reasoning_tokens": 0,
        "total_tokens": 24,
        "context_tokens": 24,
        "by_model": [
            {
                "model": "gpt-5-mini",
                "requests": 1,
                "unreported_requests": 0,
                "input_tokens": 21,
                "cached_input_tokens": 0,
                "uncached_input_tokens": 21,
                "cache_write_tokens": 0,
                "output_tokens": 3,
                "reasoning_tokens": 0,
                "total_tokens": 24,
            }
        ],
    },
    "error": None,
    "pause": None,
    "cancel": None,
    "runs": 1,
    "last_event_id": 9,
    "metadata": {},
    "created_at": "2026-01-31T12:00:00.000Z",
    "started_at": "2026-01-31T12:00:00.004Z",
    "ended_at": "2026-01-31T12:00:01.250Z",
}
CONVERSATION_EXAMPLE: dict[str, Any] = {
    "id": _CONVERSATION_ID,
    "object": "conversation",
    "agent": "assistant",
    "last_agent": "assistant",
    "metadata": {},
    "created_at": "2026-01-31T12:00:00.000Z",
    "active_at": "2026-01-31T12:00:01.250Z",
}
_EVENTS_EXAMPLE = (
    "id: 1\nevent: turn.started\nretry: 2000\n"
    f'data: {{"type":"turn.started","seq":1,"turn_id":"{_TURN_ID}","conversation_id":"{_CONVERSATION_ID}",'
    '"agent":"assistant","run":1,"at":"2026-01-31T12:00:00.004Z"}\n\n'
)
START_EXAMPLES: dict[str, Any] = {
    "text": {"summary": "A message", "value": {"input": "Say hello."}},
    "items": {
        "summary": "A message with an image, in the background",
        "value": {
            "input": [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "What is this?"},
                        {"type": "input_image", "image_url": "https://example.com/a.png"},
                    ],
                }
            ],
            "background": True,
            "metadata": {"ticket": "4711"},
        },
    },
}
_TITLES = {421: "The Host is unknown", 406: "No acceptable form", 410: "The events have expired"}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(name: str, example: Any = None) -> dict[str, Any]:
    media: dict[str, Any] = {"schema": _ref(name)}
    return {"application/json": media | ({} if example is None else {"example": example})}


def _header(description: str, example: str | None = None) -> dict[str, Any]:
    shown: dict[str, Any] = {"description": description, "schema": {"type": "string"}}
    return shown | ({} if example is None else {"example": example})


REQUEST_ID = {"X-Request-Id": _header("This request, in the logs too: the caller's own if it is sane.")}
TURN_HEADERS = {
    "Location": _header("The turn.", f"/v1/turns/{_TURN_ID}"),
    "X-Turn-Id": _header("The turn's id.", _TURN_ID),
    "X-Conversation-Id": _header("Its conversation's id.", _CONVERSATION_ID),
    **REQUEST_ID,
}
_RETRY_AFTER = {"Retry-After": _header("Seconds.", "1")}


def _answer(description: str, content: dict[str, Any], headers: dict[str, Any] = REQUEST_ID) -> dict[str, Any]:
    return {"description": description, "content": content, "headers": headers}


def problems(*statuses: int) -> Responses:
    """The problem answers of a route, beside those that any may give."""
    everywhere = (400, 401, 403, 421, 500, 503)
    return {status: _problem(status) for status in sorted({*statuses, *everywhere})}


def _problem(status: int) -> dict[str, Any]:
    headers = {**REQUEST_ID, **(_RETRY_AFTER if status in (429, 503) else {})}
    content = {"application/problem+json": {"schema": _ref("Problem")}}
    return _answer(_TITLES.get(status, HTTPStatus(status).phrase), content, headers)


# OpenAPI 3.1 has no word for the items of a stream, and a schema here would be one of all of it as one string.
_SSE = {
    "text/event-stream": {
        "x-event-schema": _ref("Event"),
        "example": _EVENTS_EXAMPLE,
    }
}
_TEXT = {"text/plain": {"schema": {"type": "string"}, "example": "Hello!"}}
_NOTHING_LEFT = {"description": "Nothing is left to be told.", "headers": TURN_HEADERS}

STARTED: Responses = {
    200: _answer(
        "The turn, until it pauses or ends.", {**_SSE, **_json("Turn", TURN_EXAMPLE), **_TEXT}, TURN_HEADERS
    ),
    202: _answer("Accepted: `background` was asked for.", _json("Turn"), TURN_HEADERS),
    204: _NOTHING_LEFT,
}
CONTINUED: Responses = STARTED
TURN: Responses = {200: _answer("The turn.", _json("Turn", TURN_EXAMPLE), TURN_HEADERS)}
CANCELLED: Responses = {
    200: _answer("The turn has ended and its history is settled.", _json("Turn"), TURN_HEADERS),
    202: _answer("The cancel is under way.", _json("Turn"), TURN_HEADERS),
}
EVENTS: Responses = {
    200: _answer("The events.", {**_SSE, **_json("EventPage")}, TURN_HEADERS),
    204: _NOTHING_LEFT,
}
CONVERSATION_EVENTS: Responses = {200: _answer("The events; `id` is `{turn_id}:{seq}`.", _SSE)}
TURN_PAGE: Responses = {200: _answer("A page of turns.", _json("TurnPage"))}
CONVERSATION: Responses = {200: _answer("The conversation.", _json("Conversation", CONVERSATION_EXAMPLE))}
NEW_CONVERSATION: Responses = {
    201: _answer(
        "The new conversation.",
        _json("Conversation", CONVERSATION_EXAMPLE),
        {
            "Location": _header("The conversation.", f"/v1/conversations/{_CONVERSATION_ID}"),
            "X-Conversation-Id": TURN_HEADERS["X-Conversation-Id"],
            **REQUEST_ID,
        },
    )
}
CONVERSATION_PAGE: Responses = {200: _answer("A page of conversations.", _json("ConversationPage"))}
ITEM_PAGE: Responses = {200: _answer("A page of items.", _json("ItemPage"))}
OBJECT: Responses = {200: _answer("The object.", {"application/json": {"schema": {"type": "object"}}})}
APPROVAL_PAGE: Responses = {200: _answer("What waits for a person.", _json("ApprovalPage"))}
OBJECT_PAGE: Responses = {200: _answer("A page of objects.", _json("ObjectPage"))}
NO_CONTENT: Responses = {204: {"description": "Done.", "headers": REQUEST_ID}}
HEALTH: Responses = {200: _answer("Alive.", _json("Health", {"status": "ok"}))}
READINESS: Responses = {200: _answer("Ready.", _json("Readiness", {"status": "ready"}))}
_BYTES = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
ARTIFACT: Responses = {200: _answer("The file's bytes.", _BYTES)}
METRICS: Responses = {200: _answer("Metrics.", {"text/plain": {"schema": {"type": "string"}}})}
