"""What is sent is checked before anything is done, and every refusal is a problem that says where."""

import asyncio
import json
import logging
from typing import Any

import anyio
import httpx
import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from app.api.body import BodyReader
from app.errors import BadRequest, BodyTooLarge, Overloaded
from tests.api.fake_turns import FakeTurns
from tests.api.serving import app_of
from tests.bounds import BOUND_S
from tests.bridge import bridged_client

pytestmark = pytest.mark.anyio

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": ""},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "multipart/form-data; boundary=x"},
        {"Content-Type": "application/json; charset=latin-1"},
        {"Content-Type": "application/jsonx"},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
    ],
)
async def test_another_content_type_is_refused_on_every_route_that_takes_a_body(
    http: httpx.AsyncClient, turns: FakeTurns, headers: dict[str, str]
) -> None:
    routes = [
        "/v1/turns",
        "/v1/conversations",
        "/v1/conversations/c/fork",
        "/v1/turns/t/resume",
        "/v1/turns/t/decisions",
    ]
    for content in (b"", b'{"input":"hi"}'):
        for route in routes:
            answer = await http.post(route, content=content, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")
    assert (await http.patch("/v1/conversations/c", content=b"{}", headers=headers)).status_code == 415
    assert not turns.calls


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON; Charset=UTF-8", 'application/json;charset="utf8"']
)
async def test_json_in_utf_8_is_taken(http: httpx.AsyncClient, kind: str) -> None:
    content = json.dumps({"input": "é", "background": True}, ensure_ascii=False).encode()
    assert (await http.post("/v1/turns", content=content, headers={"Content-Type": kind})).status_code == 202


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"", 422, "invalid_request"),
        (b"  ", 400, "bad_request"),
        (b"{", 400, "bad_request"),
        (b"[1]", 422, "invalid_request"),
        (b"null", 422, "invalid_request"),
        (b'"text"', 422, "invalid_request"),
        (b'{"input":"hi","input":"ho"}', 400, "bad_request"),
        (b'{"input":"\\u0000"}', 400, "bad_request"),
        (b'{"input":"\\ud800"}', 400, "bad_request"),
        (b'{"input":"hi","temperature":NaN}', 400, "bad_request"),
        (b'{"input":"\xff"}', 400, "bad_request"),
        (b'{"input":' + b"[" * 70 + b"]" * 70 + b"}", 400, "bad_request"),
        (b"[" * 200_000, 400, "bad_request"),
    ],
)
async def test_what_is_no_json_of_ours_is_refused_with_its_place(
    http: httpx.AsyncClient, turns: FakeTurns, content: bytes, status: int, code: str
) -> None:
    answer = await http.post("/v1/turns", content=content, headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.json()["errors"][0]["loc"][0] == "body"
    assert not turns.calls


@pytest.mark.parametrize(
    ("fields", "loc"),
    [
        ({"inputs": "hi"}, ["body", "inputs"]),
        ({"temperature": "1"}, ["body", "temperature"]),
        ({"max_steps": 0}, ["body", "max_steps"]),
        ({"max_steps": 1.5}, ["body", "max_steps"]),
        ({"stepwise": "true"}, ["body", "stepwise"]),
        ({"on_conflict": "wait"}, ["body", "on_conflict"]),
        ({"metadata": {"k": 1}}, ["body", "metadata", "k"]),
        ({"tools": [{"name": "no spaces"}]}, ["body", "tools", 0, "name"]),
    ],
)
async def test_a_field_that_is_wrong_or_unknown_is_named(
    http: httpx.AsyncClient, fields: dict[str, Any], loc: list[str | int]
) -> None:
    answer = await http.post("/v1/turns", json={"input": "hi", **fields})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    assert [error["loc"] for error in answer.json()["errors"]] == [loc]
    assert ".".join(map(str, loc)) in answer.json()["detail"]


async def test_a_refusal_never_repeats_what_was_sent(http: httpx.AsyncClient) -> None:
    secret = "sk-very-secret"
    answer = await http.post("/v1/turns", json={"input": 5, "model": [secret], "agent": {"key": secret}})
    assert answer.status_code == 422
    assert secret not in answer.text


async def test_a_refusal_stays_small_however_much_is_wrong(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/turns", json={"input": "hi"} | {f"{i}" + "x" * 1000: 1 for i in range(500)})
    assert len(answer.json()["errors"]) == 50
    assert len(answer.content) < 20_000


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_that_is_too_large_is_413(turns: FakeTurns, chunked: bool) -> None:
    async def chunks() -> Any:
        for _ in range(20):
            yield b" " * 100

    async with bridged_client(app_of(turns, max_body_bytes=1000)) as http:
        content = chunks() if chunked else b" " * 2000
        answer = await http.post("/v1/turns", content=content, headers=JSON)
        assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


async def test_a_large_body_is_taken_whole(http: httpx.AsyncClient, turns: FakeTurns) -> None:
    text = "ä" * 500_000
    answer = await http.post("/v1/turns", json={"input": text, "background": True})
    assert answer.status_code == 202
    assert turns.all["turn_1"].turn.request.input == text


class Sender:
    """A client that sends the pieces it is given, each when it is asked for, and then nothing."""

    def __init__(self, *pieces: bytes, then: str = "silence") -> None:
        self.pieces = list(pieces)
        self.then = then

    async def receive(self) -> Message:
        if self.pieces:
            return {"type": "http.request", "body": self.pieces.pop(0), "more_body": True}
        if self.then == "leave":
            return {"type": "http.disconnect"}
        await asyncio.Event().wait()
        raise AssertionError

    def request(self) -> Request:
        headers = [(b"content-type", b"application/json")]
        return Request({"type": "http", "method": "POST", "headers": headers}, self.receive)


async def test_a_body_that_does_not_arrive_is_given_up() -> None:
    with anyio.fail_after(BOUND_S), pytest.raises(BadRequest, match="3 bytes came") as refused:
        await BodyReader(1000, silence_s=0.02).read(Sender(b'{"a').request())
    assert refused.value.extra == {"close": True}


async def test_a_body_that_trickles_is_given_up() -> None:
    class Trickle(Sender):
        async def receive(self) -> Message:
            await anyio.sleep(0.01)
            return {"type": "http.request", "body": b" ", "more_body": True}

    with anyio.fail_after(BOUND_S), pytest.raises(BadRequest, match="did not arrive"):
        await BodyReader(10**9, silence_s=1, whole_s=0.1).read(Trickle().request())


async def test_reading_stops_at_the_limit() -> None:
    sender = Sender(*[b"x" * 100] * 50)
    with pytest.raises(BodyTooLarge):
        await BodyReader(1000).read(sender.request())
    assert len(sender.pieces) == 39


async def test_a_client_that_leaves_while_it_sends_ends_the_reading() -> None:
    with pytest.raises(ClientDisconnect):
        await BodyReader(1000).read(Sender(b"{", then="leave").request())


# --- problems -----------------------------------------------------------------------------------


async def test_a_problem_is_whole(http: httpx.AsyncClient) -> None:
    answer = await http.get("/v1/turns/turn_9")
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {
        "type": "urn:turnwire:problem:not_found",
        "title": "Not found",
        "status": 404,
        "detail": "There is no turn 'turn_9'.",
        "code": "not_found",
        "request_id": answer.headers["x-request-id"],
    }


@pytest.mark.parametrize("path", ["/nothing", "/v1", "/v1/turns/", "/v1/turns/a/b", "/%ff%00", "/v1/../v1/x"])
async def test_a_path_that_is_none_is_not_found(http: httpx.AsyncClient, path: str) -> None:
    answer = await http.get(path)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/turns", "GET, HEAD, POST"),
        ("OPTIONS", "/v1/conversations/c", "DELETE, GET, HEAD, PATCH"),
        ("DELETE", "/healthz", "GET, HEAD"),
        ("DELETE", "/docs", "GET"),
        ("HEAD", "/v1/turns/t/resume", "POST"),
    ],
)
async def test_a_method_that_is_none_is_405_and_says_which_are(
    http: httpx.AsyncClient, method: str, path: str, allowed: str
) -> None:
    answer = await http.request(method, path)
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
    assert answer.headers["allow"] == allowed


async def test_a_defect_is_500_with_nothing_inside_and_logged(
    http: httpx.AsyncClient, turns: FakeTurns, caplog: pytest.LogCaptureFixture
) -> None:
    turns.refusal = RuntimeError("secret: /srv/app/keys")
    answer = await http.post("/v1/turns", json={"input": "hi"})
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "secret" not in answer.text
    assert answer.headers["x-request-id"] == answer.json()["request_id"]
    assert any(r.exc_info and r.levelno == logging.ERROR for r in caplog.records)


async def test_an_error_at_the_head_of_a_stream_is_a_problem(http: httpx.AsyncClient, turns: FakeTurns) -> None:
    turns.tail_refusal = Overloaded("Too many listeners.", retry_after_s=5)
    answer = await http.post("/v1/turns", json={"input": "hi"}, headers={"Accept": "text/event-stream"})
    assert (answer.status_code, answer.json()["code"]) == (503, "overloaded")
    assert answer.headers["retry-after"] == "5"


@pytest.mark.parametrize(
    ("given", "taken"), [("abc-1.2:3/4_5", True), ("x" * 129, False), ("a b", False), ("", False), ("é", False)]
)
async def test_a_request_id_is_taken_if_it_is_sane(http: httpx.AsyncClient, given: str, taken: bool) -> None:
    answer = await http.get("/healthz", headers=[(b"X-Request-Id", given.encode())])
    assert (answer.headers["x-request-id"] == given) == taken
    assert answer.headers["x-request-id"]


# --- every answer -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/", "/docs", "/openapi.json", "/healthz", "/readyz", "/metrics", "/v1/turns", "/nothing"]
)
async def test_every_answer_carries_the_headers_that_make_it_safe(http: httpx.AsyncClient, path: str) -> None:
    answer = await http.get(path)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")


@pytest.mark.parametrize(
    "path", ["/", "/healthz", "/readyz", "/metrics", "/v1/turns", "/v1/agents", "/nothing"]
)
async def test_head_is_get_without_its_body(http: httpx.AsyncClient, path: str) -> None:
    got, head = await http.get(path), await http.head(path)
    assert head.status_code == got.status_code
    assert head.headers["content-type"] == got.headers["content-type"]


async def test_head_of_events_begins_no_stream(http: httpx.AsyncClient, turns: FakeTurns) -> None:
    await http.post("/v1/turns", json={"input": "hi", "background": True})
    head = await http.head("/v1/turns/turn_1/events")
    assert head.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert turns.all["turn_1"].listeners == 0


async def test_readiness_says_why_not(http: httpx.AsyncClient, turns: FakeTurns) -> None:
    assert (await http.get("/readyz")).json() == {"status": "ready"}
    assert (await http.get("/readyz?deep=1")).json() == {"status": "ready", "upstreams": []}
    turns.is_ready = False
    answer = await http.get("/readyz")
    assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
    turns.draining = True
    assert (await http.get("/readyz")).json()["code"] == "shutting_down"


async def test_metrics_are_for_prometheus(http: httpx.AsyncClient) -> None:
    answer = await http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert "turnwire_listeners" in answer.text


async def test_pages_run_only_what_their_policy_names_and_load_nothing_foreign(http: httpx.AsyncClient) -> None:
    for path in ("/", "/docs"):
        page = await http.get(path)
        assert "sha256-" in page.headers["content-security-policy"]
        assert "//" not in page.text.replace("http://…", "")
