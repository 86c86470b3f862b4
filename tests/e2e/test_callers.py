"""Who may ask, from where, and what each sees."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.service.client import TurnwireClient
from tests.service.process import ServiceProcess

pytestmark = pytest.mark.anyio
ANN, BOB = "ann-key-0123456789abcdef", "bob-key-fedcba9876543210"
CHAT = "https://chat.example"


@pytest.fixture(scope="module")
def keyed_service(tmp_path_factory: pytest.TempPathFactory, upstream_origin: str) -> Iterator[ServiceProcess]:
    settings = {"TURNWIRE_API_KEYS": f"ann:{ANN},bob:{BOB}", "TURNWIRE_CORS_ORIGINS": CHAT}
    with ServiceProcess(tmp_path_factory.mktemp("keyed"), upstream_origin, **settings) as service:
        yield service
        service.check_log()
        assert not [line for line in service.log if ANN in line or BOB in line]


@pytest.fixture
async def ann(keyed_service: ServiceProcess) -> AsyncIterator[TurnwireClient]:
    client = TurnwireClient(keyed_service.base_url, key=ANN)
    yield client
    await client.aclose()


@pytest.fixture
async def bob(keyed_service: ServiceProcess) -> AsyncIterator[TurnwireClient]:
    client = TurnwireClient(keyed_service.base_url, key=BOB)
    yield client
    await client.aclose()


@pytest.fixture
async def nobody(keyed_service: ServiceProcess) -> AsyncIterator[TurnwireClient]:
    client = TurnwireClient(keyed_service.base_url)
    yield client
    await client.aclose()


async def test_without_a_good_key_nothing_is_told(
    nobody: TurnwireClient, keyed_service: ServiceProcess
) -> None:
    wrong = TurnwireClient(keyed_service.base_url, key="wrong")
    for client in (nobody, wrong):
        for path in ("/v1/turns", "/v1/agents", "/v1/conversations/x"):
            response = await client.http.get(path)
            assert (response.status_code, response.json()["code"]) == (401, "unauthenticated")
        assert (await client.post("hello")).status_code == 401
    await wrong.aclose()


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/"])
async def test_health_needs_no_key(nobody: TurnwireClient, path: str) -> None:
    assert (await nobody.http.get(path)).status_code == 200


async def test_everything_of_another_caller_is_404(ann: TurnwireClient, bob: TurnwireClient) -> None:
    turn = await ann.run("hello")
    turn_path = f"/v1/turns/{turn['id']}"
    conversation = f"/v1/conversations/{turn['conversation_id']}"
    empty: dict[str, object] = {}
    answers = [
        *[await bob.http.get(turn_path + more) for more in ("", "/events", "/artifacts")],
        *[await bob.http.get(conversation + more) for more in ("", "/items", "/turns", "/events")],
        await bob.http.delete(turn_path),
        await bob.http.delete(f"{conversation}/turns/active"),
        await bob.http.delete(conversation),
        await bob.http.patch(conversation, json={"metadata": {}}),
        await bob.http.post(f"{conversation}/fork", json=empty),
        await bob.http.post(
            f"{turn_path}/decisions", json={"decisions": [{"approval_id": "a", "decision": "approve"}]}
        ),
    ]
    assert [answer.status_code for answer in answers] == [404] * len(answers)
    assert (await ann.turn(turn["id"]))["status"] == "completed"


async def test_conversation_ids_are_each_callers_own(ann: TurnwireClient, bob: TurnwireClient) -> None:
    mine = await ann.run("hello", conversation="shared-name")
    theirs = await bob.run("hello", conversation="shared-name")
    assert [t["id"] for t in await ann.turns("shared-name")] == [mine["id"]]
    assert [t["id"] for t in await bob.turns("shared-name")] == [theirs["id"]]


async def test_lists_hold_only_ones_own(ann: TurnwireClient, bob: TurnwireClient) -> None:
    turn = await ann.run("hello")
    for path in ("/v1/turns", "/v1/conversations"):
        listed = str((await bob.http.get(path, params={"limit": 100})).json())
        assert turn["id"] not in listed
        assert turn["conversation_id"] not in listed


async def test_idempotency_keys_are_each_callers_own(ann: TurnwireClient, bob: TurnwireClient) -> None:
    key = {"idempotency-key": "same"}
    assert (await ann.post("hello", headers=key)).json()["id"] != (await bob.post("hello", headers=key)).json()[
        "id"
    ]


async def test_a_user_sees_only_what_is_the_users(ann: TurnwireClient, keyed_service: ServiceProcess) -> None:
    one = TurnwireClient(keyed_service.base_url, key=ANN, user="u_1")
    two = TurnwireClient(keyed_service.base_url, key=ANN, user="u_2")
    turn = await one.run("hello")
    assert (await two.http.get(f"/v1/turns/{turn['id']}")).status_code == 404
    assert (await one.http.get(f"/v1/turns/{turn['id']}")).status_code == 200
    assert (await ann.http.get(f"/v1/turns/{turn['id']}")).status_code == 200
    await one.aclose()
    await two.aclose()


@pytest.mark.parametrize("override", [{"model": "other"}, {"instructions": "Obey."}])
async def test_what_a_caller_may_not_override_is_403(ann: TurnwireClient, override: dict[str, str]) -> None:
    response = await ann.post("hello", **override)  # type: ignore[arg-type]
    assert (response.status_code, response.json()["code"]) == (403, "override_forbidden")
    assert next(iter(override)) in response.json()["detail"]


async def test_a_page_of_an_allowed_origin_may_read_the_headers(ann: TurnwireClient) -> None:
    response = await ann.post("hello", headers={"origin": CHAT})
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == CHAT
    exposed = response.headers["access-control-expose-headers"].lower()
    for name in ("location", "x-turn-id", "x-conversation-id", "x-request-id"):
        assert name in exposed


async def test_a_preflight_is_answered_without_a_key(nobody: TurnwireClient) -> None:
    asked = {
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type,last-event-id",
    }
    allowed = await nobody.http.options("/v1/turns", headers=asked | {"origin": CHAT})
    foreign = await nobody.http.options("/v1/turns", headers=asked | {"origin": "https://evil.example"})
    assert allowed.status_code in (200, 204)
    assert allowed.headers["access-control-allow-origin"] == CHAT
    assert "access-control-allow-origin" not in foreign.headers


async def test_a_foreign_page_is_turned_away(client: TurnwireClient, ann: TurnwireClient) -> None:
    for asking in (client, ann):
        response = await asking.post("hello", headers={"origin": "https://evil.example"})
        assert (response.status_code, response.json()["code"]) == (403, "origin_forbidden")


@pytest.mark.parametrize("path", ["/v1/turns", "/v1/conversations", "/v1/turns/turn_x/resume"])
async def test_a_post_needs_the_media_type_of_json(client: TurnwireClient, path: str) -> None:
    plain = await client.http.post(path, content=b"{}", headers={"content-type": "text/plain"})
    empty = await client.http.post(path)
    assert [r.json()["code"] for r in (plain, empty)] == ["unsupported_media_type"] * 2


async def test_a_host_that_is_not_this_machine_is_421(client: TurnwireClient) -> None:
    response = await client.http.get("/v1/turns", headers={"host": "evil.example"})
    local = await client.http.get("/v1/turns", headers={"host": "localhost:8000"})
    assert (response.status_code, response.json()["code"], local.status_code) == (421, "unknown_host", 200)


async def test_unknown_routes_and_methods_are_problems(client: TurnwireClient) -> None:
    unknown = await client.http.get("/v1/nothing")
    wrong = await client.http.put("/v1/turns", json={})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found")
    assert (wrong.status_code, wrong.json()["code"]) == (405, "method_not_allowed")
    assert "allow" in wrong.headers
