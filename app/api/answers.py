"""JSON answers, and the headers by which every answer names its turn."""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote

import orjson
from fastapi import Response
from fastapi.responses import StreamingResponse

from app.domain.conversation import Page
from app.domain.events import LogEntry
from app.domain.json_types import JsonObject
from app.domain.ports import StoredArtifact
from app.domain.turn import Turn

NO_STORE = {"Cache-Control": "no-store"}


def dumps(value: Any) -> bytes:
    """JSON in UTF-8; also of what orjson refuses: half a surrogate pair, an integer over 64 bits."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


class JsonAnswer(Response):
    media_type = "application/json"

    def __init__(self, content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(dumps(content), status, {**NO_STORE, **(headers or {})})


def turn_headers(turn: Turn) -> dict[str, str]:
    return {
        "Location": f"/v1/turns/{turn.id}",
        "X-Turn-Id": turn.id,
        "X-Conversation-Id": turn.conversation_id,
    }


def turn_answer(turn: Turn, status: int = 200) -> Response:
    return JsonAnswer(turn.as_json(with_input=True), status, turn_headers(turn))


def page_answer(data: list[JsonObject], page: Page[Any] | None = None) -> Response:
    following = page and page.next
    return JsonAnswer({"data": data, "has_more": following is not None, "next": following})


def attachment(artifact: StoredArtifact, content: AsyncIterator[bytes]) -> Response:
    """A file that a turn produced: whatever it says it is, a browser saves it and runs nothing of it."""
    name = quote(artifact.name, safe="")
    headers = {
        **NO_STORE,
        "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
        "Content-Length": str(artifact.size),
        "Content-Security-Policy": "sandbox",
        "X-Content-Type-Options": "nosniff",
    }
    return StreamingResponse(content, headers=headers, media_type=artifact.media_type)


def events_answer(entries: list[LogEntry], has_more: bool, headers: Mapping[str, str]) -> Response:
    """A page of the log: the events' own bytes, which are JSON already."""
    events = b",".join(entry.data for entry in entries)
    content = b'{"events":[%b],"has_more":%b}' % (events, b"true" if has_more else b"false")
    return Response(content, headers={**NO_STORE, **headers}, media_type="application/json")
