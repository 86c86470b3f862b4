"""Turns over HTTP: how they are started, answered, read, followed and cancelled."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from app.domain.caller import ANONYMOUS
from app.domain.ids import ArtifactId, TurnId
from app.domain.ports import StoredArtifact
from app.errors import QueueFull, ShuttingDown, TurnInProgress
from tests.api.fake_turns import AT, FakeTurns
from tests.api.serving import app_of
from tests.bridge import bridged_client
from tests.wire.sse_parser import parse

pytestmark = pytest.mark.anyio

HI = {"input": "hi"}
SSE = {"Accept": "text/event-stream"}
JSON = {"Accept": "application/json"}
TEXT = {"Accept": "text/plain"}


async def post(
    http: httpx.AsyncClient, turns: FakeTurns, headers: dict[str, str], **more: Any
) -> httpx.Response:
    """POST a turn that says hello and completes."""
    task = asyncio.create_task(http.post("/v1/turns", json={**HI, **more}, headers=headers))
    turn_id = await turns.first()
    turns.say(turn_id, "Hel", "lo")
    turns.end(turn_id, output_text="Hello")
    return await task


@pytest.mark.parametrize("accept", ["*/*", "text/event-stream"])
async def test_events_are_the_default_form(http: httpx.AsyncClient, turns: FakeTurns, accept: str) -> None:
    answer = await post(http, turns, {"Accept": accept})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert [(m.id, m.event) for m in parse(answer.content)] == [
        ("1", "turn.started"),
        ("2", "message.delta"),
        ("3", "message.delta"),
        ("4", "turn.completed"),
    ]


async def test_json_waits_for_the_end_and_is_the_turn(http: httpx.AsyncClient, turns: FakeTurns) -> None:
    answer = await post(http, turns, {"Accept": "application/json, text/plain, */*"})
    assert answer.headers["content-type"] == "application/json"
    assert (answer.json()["status"], answer.json()["output_text"]) == ("completed", "Hello")
    assert answer.json()["input"] == "hi"


async def test_json_of_a_failed_turn_is_200_too(http: httpx.AsyncClient, turns: FakeTurns) -> None:
    task = asyncio.create_task(http.post("/v1/turns", json=HI, headers=JSON))
    turns.fail(await turns.first(), "timeout", "It took too long.")
    answer = await task
    assert answer.status_code == 200
    assert (answer.json()["status"], answer.json()["error"]["code"]) == ("failed", "timeout")


async def test_json_of_a_turn_that_pauses_is_answered_with_its_pause(
    http: httpx.AsyncClient, turns: FakeTurns
) -> None:
    task = asyncio.create_task(http.post("/v1/turns", json=HI, headers=JSON))
    turns.pause(await turns.first())
    assert (await task).json()["pause"]["reason"] == "approval"


async def test_waiting_json_begins_with_spaces(turns: FakeTurns) -> None:
    async with (
        bridged_client(app_of(turns, heartbeat_s=0.02)) as http,
        http.stream("POST", "/v1/turns", json=HI, headers=JSON) as answer,
    ):
        pieces = answer.aiter_bytes()
        assert await anext(pieces) == b" "
        turns.end(turns.only)
        rest = b"".join([piece async for piece in pieces])
    assert json.loads(rest)["status"] == "completed"


async def test_text_is_the_text_and_nothing_else(http: httpx.AsyncClient, turns: FakeTurns) -> None:
    answer = await post(http, turns, TEXT)
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.text == "Hello"


async def test_text_of_a_failed_turn_ends_with_a_line_in_brackets(
    http: httpx.AsyncClient, turns: FakeTurns
) -> None:
    task = asyncio.create_task(http.post("/v1/turns", json=HI, headers=TEXT))
    turn_id = await turns.first()
    turns.say(turn_id, "Hel")
    turns.fail(turn_id, "timeout", "It took too long.")
    assert (await task).text == "Hel\n\n[failed: timeout: It took too long.]\n"


@pytest.mark.parametrize("accept", ["text/event-stream", "application/json", "text/plain"])
async def test_a_background_turn_is_accepted_at_once_in_json(http: httpx.AsyncClient, accept: str) -> None:
    answer = await http.post("/v1/turns", json={**HI, "background": True}, headers={"Accept": accept})
    assert answer.status_code == 202
    assert answer.json()["status"] == "running"


@pytest.mark.parametrize("headers", [SSE, JSON, TEXT])
async def test_every_answer_names_its_turn(
    http: httpx.AsyncClient, turns: FakeTurns, headers: dict[str, str]
) -> None:
    answer = await post(http, turns, headers | {"X-Request-Id": "mine-1"})
    assert answer.headers["location"] == "/v1/turns/turn_1"
    assert answer.headers["x-turn-id"] == "turn_1"
    assert answer.headers["x-conversation-id"] == "conv_1"
    assert answer.headers["x-request-id"] == "mine-1"


async def test_a_form_that_we_do_not_have_starts_nothing(http: httpx.AsyncClient, turns: FakeTurns) -> None:
    answer = await http.post("/v1/turns", json=HI, headers={"Accept": "text/html"})
    assert (answer.status_code, answer.json()["code"]) == (406, "not_acceptable")
    assert not turns.calls


async def test_a_turn_is_started_in_the_conversation_of_the_path(
    http: httpx.AsyncClient, turns: FakeTurns
) -> None:
    answer = await http.post("/v1/conversations/my-chat_1/turns", json={**HI, "background": True})
    assert answer.headers["x-conversation-id"] == "my-chat_1"
    assert turns.calls[0][:3] == ("start", ANONYMOUS, "my-chat_1")


@pytest.mark.parametrize("conversation_id", ["a" * 129, "a b", "ä", "a.b", "%00"])
async def test_a_conversation_id_is_1_to_128_plain_characters(
    http: httpx.AsyncClient, turns: FakeTurns, conversation_id: str
) -> None:
    answer = await http.post(f"/v1/conversations/{conversation_id}/turns", json=HI)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    assert answer.json()["errors"][0]["loc"] == ["path", "conversation_id"]
    assert not turns.calls


@pytest.mark.parametrize(
    ("refusal", "status", "more"),
    [
        (TurnInProgress("One is under way.", turn_id="turn_9"), 409, {"turn_id": "turn_9"}),
        (QueueFull("Ten wait.", retry_after_s=2.2), 429, {}),
        (ShuttingDown("Stopping."), 503, {}),
    ],
)
async def test_a_turn_that_cannot_start_is_a_plain_problem(
    http: httpx.AsyncClient, turns: FakeTurns, refusal: Exception, status: int, more: dict[str, str]
) -> None:
    turns.refusal = refusal
    answer = await http.post("/v1/turns", json=HI, headers=SSE)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert more.items() <= answer.json().items()
    assert answer.headers.get("retry-after") == {409: None, 429: "3", 503: "1"}[status]


@pytest.mark.parametrize(
    ("name", "value"), [("temperature", 0), ("parallel_tool_calls", False), ("instructions", "")]
)
async def test_an_override_may_be_a_value_that_looks_like_nothing(
    turns: FakeTurns, name: str, value: object
) -> None:
    async with bridged_client(app_of(turns, overrides="model")) as http:
        answer = await http.post("/v1/turns", json={**HI, name: value})
        assert (answer.status_code, answer.json()["errors"][0]["loc"]) == (403, ["body", name])


async def test_a_forbidden_override_is_named_and_one_that_says_nothing_is_none(turns: FakeTurns) -> None:
    async with bridged_client(app_of(turns, overrides="temperature")) as http:
        answer = await http.post("/v1/turns", json={**HI, "temperature": 1, "model": "gpt-big"})
        assert (answer.status_code, answer.json()["code"]) == (403, "override_forbidden")
        assert answer.json()["errors"][0]["loc"] == ["body", "model"]
        assert not turns.calls
        allowed: dict[str, Any] = {**HI, "temperature": 1, "model": None, "tools": [], "background": True}
        assert (await http.post("/v1/turns", json=allowed)).status_code == 202


# --- idempotency --------------------------------------------------------------------------------


async def test_the_same_key_gives_the_same_turn_from_its_start(
    http: httpx.AsyncClient, turns: FakeTurns
) -> None:
    key = {"Idempotency-Key": "k1"}
    first = await post(http, turns, SSE | key)
    again = await http.post("/v1/turns", json=HI, headers=SSE | key)
    other_form = await http.post("/v1/turns", json=HI, headers=TEXT | key)
    assert again.content == first.content
    assert other_form.text == "Hello"
    assert len(turns.all) == 1


async def test_a_known_key_goes_on_after_the_last_event_that_was_seen(
    http: httpx.AsyncClient, turns: FakeTurns
) -> None:
    key = SSE | {"Idempotency-Key": "k1"}
    await post(http, turns, key)
    again = await http.post("/v1/turns", json=HI, headers=key | {"Last-Event-ID": "2"})
    assert [m.id for m in parse(again.content)] == ["3", "4"]
    over = await http.post("/v1/turns", json=HI, headers=key | {"Last-Event-ID": "4"})
    assert (over.status_code, over.content) == (204, b"")
    assert over.headers["x-turn-id"] == "turn_1"


async def test_a_key_stands_for_one_body_however_it_is_written(
    http: httpx.AsyncClient, turns: FakeTurns
) -> None:
    headers = {"Idempotency-Key": "k1", "Content-Type": "application/json"}
    one = b'{"input":"hi","background":true}'
    same = b'{ "background": true, "input": "\\u0068i" }'
    answers = [await http.post("/v1/turns", content=body, headers=headers) for body in (one, same)]
    assert [a.status_code for a in answers] == [202, 202]
    other = await http.post("/v1/turns", json={"input": "ho", "background": True}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    path = await http.post("/v1/conversations/c/turns", content=one, headers=headers)
    assert path.status_code == 422
    assert len(turns.all) == 1


@pytest.mark.parametrize("key", ["", "x" * 256, "a b"])
async def test_a_key_is_plain_and_not_too_long(http: httpx.AsyncClient, turns: FakeTurns, key: str) -> None:
    answer = await http.post("/v1/turns", json=HI, headers={"Idempotency-Key": key})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
    assert not turns.calls


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "unknown"}])
async def test_a_post_with_a_last_event_id_but_no_known_key_starts_nothing(
    http: httpx.AsyncClient, turns: FakeTurns, headers: dict[str, str]
) -> None:
    answer = await http.post("/v1/turns", json=HI, headers=headers | {"Last-Event-ID": "3"})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_event_id")
    assert not turns.calls


async def test_an_empty_last_event_id_is_none(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/turns", json={**HI, "background": True}, headers={"Last-Event-ID": ""})
    assert answer.status_code == 202


# --- reading ------------------------------------------------------------------------------------


async def test_a_turn_is_read_with_its_input_and_listed_without(
    http: httpx.AsyncClient, turns: FakeTurns
) -> None:
    await post(http, turns, JSON)
    turn = (await http.get("/v1/turns/turn_1")).json()
    assert turn["input"] == "hi"
    page = (await http.get("/v1/turns?status=completed&agent=assistant&limit=5")).json()
    assert page == {"data": [{k: v for k, v in turn.items() if k != "input"}], "has_more": False, "next": None}
    assert turns.calls[-1][2:] == (None, "completed", "assistant")


async def test_an_unknown_turn_is_not_found_on_every_route(http: httpx.AsyncClient) -> None:
    answers = [
        await http.get("/v1/turns/turn_9"),
        await http.get("/v1/turns/turn_9/events"),
        await http.delete("/v1/turns/turn_9"),
        await http.get("/v1/turns/turn_9/artifacts"),
        await http.get("/v1/turns/turn_9/artifacts/art_1"),
        await http.post("/v1/turns/turn_9/resume", json={"pause_id": "p"}),
    ]
    assert {(a.status_code, a.json()["code"]) for a in answers} == {(404, "not_found")}


@pytest.mark.parametrize(
    ("headers", "query", "ids"),
    [
        ({}, "", ["1", "2", "3", "4"]),
        ({}, "?after=0", ["1", "2", "3", "4"]),
        ({}, "?after=3", ["4"]),
        ({"Last-Event-ID": "2"}, "?after=3", ["3", "4"]),
        ({"Last-Event-ID": ""}, "?after=3", ["4"]),
        ({"Last-Event-ID": " 3 "}, "", ["4"]),
    ],
)
async def test_events_are_replayed_after_the_given_place(
    http: httpx.AsyncClient, turns: FakeTurns, headers: dict[str, str], query: str, ids: list[str]
) -> None:
    await post(http, turns, SSE)
    answer = await http.get(f"/v1/turns/turn_1/events{query}", headers=headers)
    assert [m.id for m in parse(answer.content)] == ids
    assert answer.headers["x-turn-id"] == "turn_1"


@pytest.mark.parametrize("place", ["-1", "1.5", "x", "99", "9" * 30, "٣", "1,2", "+1"])
async def test_a_place_that_is_none_is_refused(http: httpx.AsyncClient, turns: FakeTurns, place: str) -> None:
    await post(http, turns, SSE)
    by_query = await http.get("/v1/turns/turn_1/events", params={"after": place})
    by_header = await http.get("/v1/turns/turn_1/events", headers=[(b"Last-Event-ID", place.encode())])
    for answer in (by_query, by_header):
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_event_id")


async def test_nothing_left_is_204_and_ends_reconnecting(http: httpx.AsyncClient, turns: FakeTurns) -> None:
    await post(http, turns, SSE)
    answer = await http.get("/v1/turns/turn_1/events", headers={"Last-Event-ID": "4"})
    assert (answer.status_code, answer.content) == (204, b"")


async def test_a_listener_follows_a_running_turn_to_its_end(http: httpx.AsyncClient, turns: FakeTurns) -> None:
    await http.post("/v1/turns", json={**HI, "background": True})
    async with http.stream("GET", "/v1/turns/turn_1/events?after=1") as answer:
        assert answer.status_code == 200
        turns.say("turn_1", "A")
        pieces = answer.aiter_bytes()
        assert b'"delta":"A"' in await anext(pieces)
        turns.end("turn_1")
        assert b"turn.completed" in b"".join([piece async for piece in pieces])
    assert turns.all["turn_1"].listeners == 0


async def test_events_can_be_read_as_json_in_pages(http: httpx.AsyncClient, turns: FakeTurns) -> None:
    await post(http, turns, SSE)
    page = (await http.get("/v1/turns/turn_1/events?after=1&limit=2", headers=JSON)).json()
    assert [e["seq"] for e in page["events"]] == [2, 3]
    assert page["has_more"] is True
    rest = (await http.get("/v1/turns/turn_1/events?limit=1000", headers=JSON | {"Last-Event-ID": "3"})).json()
    assert ([e["type"] for e in rest["events"]], rest["has_more"]) == (["turn.completed"], False)


@pytest.mark.parametrize("limit", ["0", "1001", "x", "-1"])
async def test_a_page_of_events_holds_1_to_1000(http: httpx.AsyncClient, limit: str) -> None:
    answer = await http.get(f"/v1/turns/turn_1/events?limit={limit}", headers=JSON)
    assert (answer.status_code, answer.json()["errors"][0]["loc"]) == (422, ["query", "limit"])


# --- cancelling ---------------------------------------------------------------------------------


async def test_a_cancel_that_has_settled_is_200_and_one_under_way_202(
    http: httpx.AsyncClient, turns: FakeTurns
) -> None:
    await http.post("/v1/turns", json={**HI, "background": True})
    under_way = await http.delete("/v1/turns/turn_1?mode=after_step")
    assert (under_way.status_code, under_way.json()["status"]) == (202, "running")
    settled = await http.delete("/v1/turns/turn_1")
    assert (settled.status_code, settled.json()["status"]) == (200, "cancelled")
    assert settled.headers["location"] == "/v1/turns/turn_1"
    assert turns.calls[1:] == [("cancel", "turn_1", "after_step"), ("cancel", "turn_1", None)]


async def test_an_unknown_mode_is_refused(http: httpx.AsyncClient) -> None:
    for path in ("/v1/turns/turn_1?mode=now", "/v1/conversations/c/turns/active?mode=now"):
        assert (await http.delete(path)).status_code == 422


async def test_the_active_turn_of_a_conversation_can_be_cancelled(
    http: httpx.AsyncClient, turns: FakeTurns
) -> None:
    path = "/v1/conversations/conv_1/turns/active?mode=rollback&queued=cancel"
    none = await http.delete(path)
    assert (none.status_code, none.json()["code"]) == (404, "no_active_turn")
    await http.post("/v1/turns", json={**HI, "background": True})
    assert (await http.delete(path)).json()["status"] == "cancelled"
    assert ("cancel_active", "conv_1", "rollback", "cancel") in turns.calls


# --- files --------------------------------------------------------------------------------------


async def test_a_file_is_always_an_attachment_that_a_browser_runs_nothing_of(
    http: httpx.AsyncClient, turns: FakeTurns
) -> None:
    await http.post("/v1/turns", json={**HI, "background": True})
    name = 'ü "x"\r\n../index.html'
    file = StoredArtifact(ArtifactId("art_1"), TurnId("turn_1"), name, "text/html", 4, AT)
    turns.files["art_1"] = (file, b"<b/>")
    assert (await http.get("/v1/turns/turn_1/artifacts")).json()["data"] == [file.as_json()]
    answer = await http.get(file.url)
    assert answer.content == b"<b/>"
    assert answer.headers["content-disposition"].startswith(
        "attachment; filename*=UTF-8''%C3%BC%20%22x%22%0D%0A..%2F"
    )
    assert answer.headers["content-security-policy"] == "sandbox"
    assert answer.headers["x-content-type-options"] == "nosniff"
    head = await http.head(file.url)
    assert (head.status_code, head.headers["content-length"]) == (200, "4")
