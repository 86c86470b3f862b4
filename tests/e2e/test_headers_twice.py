"""Headers that may stand once: of two, somebody between the caller and us may have meant the other."""

import pytest

from tests.service.client import TurnwireClient

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("name", ["Turnwire-User", "Idempotency-Key"])
async def test_a_post_with_a_header_twice_starts_nothing(client: TurnwireClient, name: str) -> None:
    before = await client.http.get("/v1/turns")
    headers = [("accept", "application/json"), (name, "a"), (name, "b")]
    response = await client.http.post("/v1/turns", json=client.body("hello"), headers=headers)
    assert (response.status_code, response.json()["code"]) == (400, "bad_request")
    assert name in response.json()["detail"]
    assert (await client.http.get("/v1/turns")).json()["data"] == before.json()["data"]


async def test_two_places_to_go_on_from_are_none(client: TurnwireClient) -> None:
    turn = await client.run("hello")
    conversation = turn["conversation_id"]
    for path in (f"/v1/turns/{turn['id']}/events", f"/v1/conversations/{conversation}/events"):
        headers = [("Last-Event-ID", "1"), ("Last-Event-ID", "2")]
        response = await client.http.get(path, headers=headers)
        assert (response.status_code, response.json()["code"]) == (400, "bad_request")
