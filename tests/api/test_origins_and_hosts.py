import httpx
import pytest

from app.api.hosts import host_name, is_loopback
from tests.api.fake_turns import FakeTurns
from tests.api.serving import app_of
from tests.bridge import bridged_client

pytestmark = pytest.mark.anyio

PAGE = "https://chat.example"


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:9999", "http://[", ""])
async def test_a_foreign_origin_is_refused_before_anything_is_done(
    http: httpx.AsyncClient, turns: FakeTurns, origin: str
) -> None:
    answer = await http.post("/v1/turns", json={"input": "hi"}, headers={"Origin": origin})
    assert (answer.status_code, answer.json()["code"]) == (403, "origin_forbidden")
    assert "access-control-allow-origin" not in answer.headers
    assert not turns.calls


async def test_the_services_own_pages_may_use_it(http: httpx.AsyncClient) -> None:
    answer = await http.get("/v1/agents", headers={"Origin": "http://127.0.0.1:8000"})
    assert answer.status_code == 200


async def test_an_allowed_page_may_read_answers_and_refusals_and_their_headers(turns: FakeTurns) -> None:
    async with bridged_client(app_of(turns, cors_origins=PAGE, api_keys="a:k")) as client:
        for key, status in (("k", 200), ("wrong", 401)):
            headers = {"Origin": PAGE, "Authorization": f"Bearer {key}"}
            answer = await client.get("/v1/agents", headers=headers)
            assert answer.status_code == status
            assert answer.headers["access-control-allow-origin"] == PAGE
            assert "X-Turn-Id" in answer.headers["access-control-expose-headers"]
            assert answer.headers["vary"] == "Origin"


async def test_a_preflight_is_answered_without_a_key(turns: FakeTurns) -> None:
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,x-sdk"}
    async with bridged_client(app_of(turns, cors_origins=PAGE, api_keys="a:k")) as client:
        allowed = await client.options("/v1/turns", headers={"Origin": PAGE, **asks})
        assert allowed.status_code == 204
        assert allowed.headers["access-control-allow-headers"] == "authorization,x-sdk"
        assert "DELETE" in allowed.headers["access-control-allow-methods"]
        foreign = await client.options("/v1/turns", headers={"Origin": "https://evil.example", **asks})
        assert foreign.status_code == 403


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8000", "localhost", "LOCALHOST:1", "[::1]:8000", "a.localhost", "127.9.9.9"]
)
async def test_on_loopback_a_loopback_host_is_known(http: httpx.AsyncClient, host: str) -> None:
    assert (await http.get("/healthz", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "10.0.0.1", "[::2]"]
)
async def test_on_loopback_another_host_is_unknown(http: httpx.AsyncClient, host: str) -> None:
    answer = await http.get("/healthz", headers={"Host": host})
    assert (answer.status_code, answer.json()["code"]) == (421, "unknown_host")


async def test_a_host_can_be_allowed(turns: FakeTurns) -> None:
    async with bridged_client(app_of(turns, allowed_hosts="Turnwire.internal,proxy:8080")) as client:
        for host, status in (("turnwire.internal:1", 200), ("proxy:8080", 200), ("proxy:8081", 421)):
            assert (await client.get("/healthz", headers={"Host": host})).status_code == status


async def test_elsewhere_than_on_loopback_any_host_will_do(turns: FakeTurns) -> None:
    async with bridged_client(app_of(turns, host="0.0.0.0", api_keys="a:k")) as client:
        assert (await client.get("/healthz", headers={"Host": "turnwire.example"})).status_code == 200


def test_the_name_of_a_host_stands_without_port_and_brackets() -> None:
    assert [host_name(h) for h in ("a.b:80", "[::1]:80", "[::1]", "a.b.")] == ["a.b", "::1", "::1", "a.b"]
    assert not is_loopback("")
