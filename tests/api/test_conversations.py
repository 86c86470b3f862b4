import httpx
import pytest

from tests.api.fake_turns import FakeTurns
from tests.wire.sse_parser import parse

pytestmark = pytest.mark.anyio


async def test_a_conversation_is_created_read_changed_and_deleted(
    http: httpx.AsyncClient, turns: FakeTurns
) -> None:
    body = {"id": "chat", "agent": "assistant", "metadata": {"a": "b"}, "items": [{"role": "user"}]}
    made = await http.post("/v1/conversations", json=body)
    assert made.status_code == 201
    assert made.headers["location"] == "/v1/conversations/chat"
    assert turns.calls.pop() == ("create_conversation", "assistant", {"a": "b"}, ({"role": "user"},))
    assert (await http.get("/v1/conversations/chat")).json() == made.json()
    changed = await http.patch("/v1/conversations/chat", json={"metadata": {"c": "d"}})
    assert changed.json()["metadata"] == {"c": "d"}
    assert turns.calls.pop() == ("update_conversation", {"metadata": {"c": "d"}})
    await http.patch("/v1/conversations/chat", json={"agent": None})
    assert turns.calls.pop() == ("update_conversation", {"agent": None})
    assert (await http.get("/v1/conversations")).json()["data"][0]["id"] == "chat"
    deleted = await http.delete("/v1/conversations/chat")
    assert (deleted.status_code, deleted.content) == (204, b"")
    assert (await http.get("/v1/conversations/chat")).status_code == 404


@pytest.mark.parametrize("content", [b"", b"{}"])
async def test_a_conversation_needs_no_body_but_its_content_type(
    http: httpx.AsyncClient, content: bytes
) -> None:
    headers = {"Content-Type": "application/json"}
    assert (await http.post("/v1/conversations", content=content, headers=headers)).status_code == 201
    assert (await http.post("/v1/conversations", content=content)).status_code == 415


@pytest.mark.parametrize("chosen", ["", "a b", "a" * 129, 7])
async def test_a_chosen_id_is_1_to_128_plain_characters(http: httpx.AsyncClient, chosen: object) -> None:
    answer = await http.post("/v1/conversations", json={"id": chosen})
    assert (answer.status_code, answer.json()["errors"][0]["loc"]) == (422, ["body", "id"])


@pytest.mark.parametrize(
    ("body", "after", "whole"),
    [
        (None, None, True),
        ({}, None, True),
        ({"after_turn": None}, None, False),
        ({"after_turn": "t"}, "t", False),
    ],
)
async def test_a_fork_takes_all_up_to_a_turn_or_nothing(
    http: httpx.AsyncClient, turns: FakeTurns, body: object, after: str | None, whole: bool
) -> None:
    await http.post("/v1/conversations", json={"id": "chat"})
    content = {"json": body} if body is not None else {"headers": {"Content-Type": "application/json"}}
    forked = await http.post("/v1/conversations/chat/fork", **content)
    assert (forked.status_code, forked.headers["location"]) == (201, "/v1/conversations/conv_2")
    assert turns.calls[-1] == ("fork_conversation", after, whole)


async def test_items_and_turns_are_listed_from_the_oldest_unless_asked(
    http: httpx.AsyncClient, turns: FakeTurns
) -> None:
    await http.post("/v1/conversations", json={"id": "chat"})
    items = (await http.get("/v1/conversations/chat/items")).json()
    assert items["data"][0]["item"]["content"] == "hi"
    assert turns.calls[-1][1].order == "asc"
    await http.get("/v1/conversations/chat/turns?order=desc&limit=3&cursor=c")
    page = turns.calls[-1][1]
    assert (page.order, page.limit, page.cursor) == ("desc", 3, "c")


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "order=up"])
async def test_a_page_that_cannot_be_is_refused(http: httpx.AsyncClient, query: str) -> None:
    answer = await http.get(f"/v1/conversations/chat/items?{query}")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")


async def test_a_second_tab_follows_turn_after_turn(http: httpx.AsyncClient, turns: FakeTurns) -> None:
    for _ in range(2):
        await http.post("/v1/turns", json={"input": "hi", "background": True})
    for turn_id in turns.all:
        turns.end(turn_id)
    async with http.stream("GET", "/v1/conversations/conv_1/events") as answer:
        pieces = answer.aiter_bytes()
        ids = [m.id for _ in range(2) for m in parse(await anext(pieces))]
        with pytest.raises(httpx.RemoteProtocolError):
            await anext(pieces)
    assert ids == ["turn_1:1", "turn_1:2", "turn_2:1", "turn_2:2"]


@pytest.mark.parametrize("place", ["1", "turn_1", "turn_1:x", "turn_9:1", ":1", "turn_1:-1"])
async def test_an_unknown_place_in_a_conversation_is_refused(http: httpx.AsyncClient, place: str) -> None:
    answer = await http.get("/v1/conversations/conv_1/events", headers={"Last-Event-ID": place})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_event_id")


async def test_a_conversation_can_only_be_followed_as_events(http: httpx.AsyncClient) -> None:
    answer = await http.get("/v1/conversations/conv_1/events", headers={"Accept": "application/json"})
    assert answer.status_code == 406


async def test_agents_are_listed_and_read(http: httpx.AsyncClient) -> None:
    assert (await http.get("/v1/agents")).json()["data"] == [{"name": "assistant"}]
    assert (await http.get("/v1/agents/assistant")).json() == {"name": "assistant"}
    unknown = await http.get("/v1/agents/nobody")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "agent_not_found")
