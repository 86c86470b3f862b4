"""The server on real sockets: how it cuts, bounds and stops. Raw sockets where a client would be too polite."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import pytest

from app.server import MAX_HEAD_BYTES, listen
from app.wire.native import NativeEncoder
from tests.api.fake_turns import FakeTurns
from tests.api.serving import app_of, served
from tests.bounds import BOUND_S
from tests.wire.sse_parser import parse

pytestmark = pytest.mark.anyio

HI = {"input": "hi"}


@asynccontextmanager
async def client_of(turns: FakeTurns, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        served(app_of(turns, **settings)) as url,
        httpx.AsyncClient(base_url=url, timeout=BOUND_S) as client,
    ):
        yield client


async def exchange(client: httpx.AsyncClient, request: bytes) -> bytes:
    """Send bytes as they are; return all that comes until the connection is closed."""
    with anyio.fail_after(BOUND_S):
        reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
        writer.write(request)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer


async def test_a_stream_ends_cleanly_after_its_last_frame() -> None:
    turns = FakeTurns()
    async with client_of(turns) as client, client.stream("POST", "/v1/turns", json=HI) as answer:
        turns.say(await turns.first(), "Hello")
        turns.end(turns.only)
        body = await answer.aread()
    assert [m.event for m in parse(body)] == ["turn.started", "message.delta", "turn.completed"]
    assert "connection" not in answer.headers
    assert "server" not in answer.headers


async def test_a_stream_that_is_cut_lacks_its_last_chunk_and_leaves_no_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    turns = FakeTurns()
    async with client_of(turns) as client, client.stream("POST", "/v1/turns", json=HI) as answer:
        turns.cut(await turns.first())
        with pytest.raises(httpx.RemoteProtocolError):
            await answer.aread()
    assert not [
        r for r in caplog.records if r.exc_info or (r.name.startswith("uvicorn") and r.levelname == "ERROR")
    ]


async def test_a_listener_that_leaves_is_noticed_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    turns = FakeTurns()
    async with client_of(turns) as client:
        for _ in range(20):
            async with client.stream("POST", "/v1/turns", json=HI) as answer:
                await anext(answer.aiter_raw())
        for turn_id in turns.all:
            await turns.listeners(turn_id, 0)
    assert not [r for r in caplog.records if r.levelname in ("WARNING", "ERROR")]


async def test_a_listener_that_stops_reading_is_cut_and_the_turn_goes_on() -> None:
    turns = FakeTurns()
    async with client_of(turns, listener_stall_s=0.2) as client:
        await client.post("/v1/turns", json={**HI, "background": True})
        stuck = socket.create_connection((client.base_url.host, client.base_url.port or 80))
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.sendall(b"GET /v1/turns/turn_1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await turns.listeners("turn_1", 1)
        turns.say("turn_1", "x" * 20_000_000)
        await turns.listeners("turn_1", 0)
        stuck.close()
        turns.end("turn_1")
        assert (await client.get("/v1/turns/turn_1")).json()["status"] == "completed"


async def test_two_hundred_listeners_get_the_same_bytes() -> None:
    turns = FakeTurns()
    async with client_of(turns) as client:
        await client.post("/v1/turns", json={**HI, "background": True})
        request = b"GET /v1/turns/turn_1/events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        async with asyncio.TaskGroup() as tasks:
            readers = [tasks.create_task(exchange(client, request)) for _ in range(200)]
            await turns.listeners("turn_1", 200)
            turns.say("turn_1", "A", "B")
            turns.end("turn_1")
        bodies = {reader.result().split(b"\r\n\r\n", 1)[1] for reader in readers}
        assert len(bodies) == 1
        assert bodies.pop().endswith(b"\r\n0\r\n\r\n")


async def test_http_1_0_gets_its_stream_and_the_connection_ends_with_it() -> None:
    turns = FakeTurns()
    async with client_of(turns) as client:
        await client.post("/v1/turns", json={**HI, "background": True})
        turns.end("turn_1")
        answer = await exchange(client, b"GET /v1/turns/turn_1/events HTTP/1.0\r\n\r\n")
    head, body = answer.split(b"\r\n\r\n", 1)
    assert b"transfer-encoding" not in head
    assert body == b"".join(
        frame for entry in turns.all["turn_1"].entries for frame in NativeEncoder().encode(entry)
    )


async def test_http_1_0_gets_other_answers_too() -> None:
    async with client_of(FakeTurns()) as client:
        answer = await exchange(client, b"GET /healthz HTTP/1.0\r\n\r\n")
        assert answer.endswith(b'\r\n\r\n{"status":"ok"}')
        assert b"content-length: 15" in answer
        assert (await exchange(client, b"HEAD /healthz HTTP/1.0\r\n\r\n")).endswith(b"\r\n\r\n")


async def test_http_1_0_learns_of_a_cut_by_a_reset() -> None:
    turns = FakeTurns()
    async with client_of(turns) as client:
        await client.post("/v1/turns", json={**HI, "background": True})
        reading = asyncio.create_task(exchange(client, b"GET /v1/turns/turn_1/events HTTP/1.0\r\n\r\n"))
        await turns.listeners("turn_1", 1)
        turns.cut("turn_1")
        with pytest.raises(ConnectionResetError):
            await reading


async def test_pipelined_requests_are_answered_in_order() -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = b"GET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    async with client_of(FakeTurns()) as client:
        answer = await exchange(client, request * 3 + last)
    assert [answer.count(b"HTTP/1.1 200"), answer.count(b"HTTP/1.1 404")] == [3, 1]
    assert answer.rindex(b"HTTP/1.1 200") < answer.index(b"HTTP/1.1 404")


GREETING = b'{"input":"hi","background":true}'


@pytest.mark.parametrize("framing", ["length", "chunks"])
@pytest.mark.parametrize("protocol", [b"h2c", b"websocket", b"TLS/1.3, foo"])
async def test_a_client_that_would_like_another_protocol_is_answered_in_this_one(
    protocol: bytes, framing: str
) -> None:
    """Java's client asks for HTTP/2 with its first request, which may well have a body."""
    head = b"POST /v1/turns HTTP/1.1\r\nHost: localhost\r\n"
    head += b"Content-Type: application/json\r\nX-Request-Id: mine\r\n"
    head += b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: " + protocol + b"\r\nHTTP2-Settings: AAMAAABk\r\n"
    if framing == "length":
        request = head + b"Content-Length: %d\r\n\r\n" % len(GREETING) + GREETING
    else:
        request = (
            head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(GREETING) + GREETING + b"\r\n0\r\n\r\n"
        )
    last = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    turns = FakeTurns()
    async with client_of(turns) as client:
        answer = await exchange(client, request * 2 + last)
        assert [answer.count(b"HTTP/1.1 202"), answer.count(b"HTTP/1.1 200")] == [2, 1]
        assert answer.lower().count(b"x-request-id: mine") == 2
        in_pieces = await exchange_piece_by_piece(client, request + last)
        of_old = request.replace(b"HTTP/1.1", b"HTTP/1.0") if framing == "length" else last
        assert (await exchange(client, of_old)).startswith(b"HTTP/1.1 20")
    assert [in_pieces.count(b"HTTP/1.1 202"), in_pieces.count(b"HTTP/1.1 200")] == [1, 1]


async def exchange_piece_by_piece(client: httpx.AsyncClient, request: bytes) -> bytes:
    """The same, a few bytes at a time."""
    with anyio.fail_after(BOUND_S):
        reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
        for start in range(0, len(request), 7):
            writer.write(request[start : start + 7])
            await writer.drain()
            await asyncio.sleep(0)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer


async def test_a_tunnel_is_refused_and_its_connection_ends() -> None:
    async with client_of(FakeTurns()) as client:
        request = b" /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        answer = await exchange(client, b"CONNECT" + request + b"GET" + request)
    assert answer.startswith(b"HTTP/1.1 405 ")
    assert answer.count(b"HTTP/1.1") == 1


async def test_what_follows_a_body_is_no_header() -> None:
    """Trailers come from whoever sent the body: a proxy that vouches for headers has not seen them."""
    head = (
        b"POST /v1/turns HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
    )
    body = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(GREETING) + GREETING + b"\r\n0\r\n"
    trailers = b"X-Request-Id: mine\r\nTurnwire-User: eve\r\nHost: evil.example\r\nIdempotency-Key: a b\r\n\r\n"
    turns = FakeTurns()
    async with client_of(turns) as client:
        answer = await exchange(client, head + body + trailers)
    assert answer.startswith(b"HTTP/1.1 202 ")
    assert b"mine" not in answer


async def test_a_request_of_http_1_1_names_its_host() -> None:
    """RFC 9112, 3.2: a server MUST answer 400 to one that lacks it."""
    async with client_of(FakeTurns()) as client:
        answer = await exchange(client, b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert (await exchange(client, b"GET /healthz HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "head", [b"GET /" + b"a" * MAX_HEAD_BYTES, b"GET / HTTP/1.1\r\nX: " + b"a" * MAX_HEAD_BYTES]
)
async def test_a_request_head_that_is_too_large_is_refused(head: bytes) -> None:
    async with client_of(FakeTurns()) as client:
        answer = await exchange(client, head + b"\r\n" * 2)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert json.loads(answer.split(b"\r\n\r\n")[1])["code"] == "bad_request"


async def test_a_connection_that_sends_nothing_but_blank_lines_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.server.HEAD_WITHIN_S", 0.2)
    async with client_of(FakeTurns()) as client:
        reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with anyio.fail_after(5):
            await reader.readuntil(b"}")
            writer.write(b"\r\n")
            assert await reader.read() == b""
        writer.close()


async def test_what_is_no_http_is_refused() -> None:
    async with client_of(FakeTurns()) as client:
        answer = await exchange(client, b"HELLO\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/problem+json" in answer


async def test_a_body_over_the_limit_is_413_while_it_is_still_being_sent() -> None:
    async with client_of(FakeTurns(), max_body_bytes=1000) as client:
        head = b"POST /v1/turns HTTP/1.1\r\nHost: localhost\r\n"
        head += b"Content-Type: application/json\r\nConnection: close\r\n"
        chunked = head + b"Transfer-Encoding: chunked\r\n\r\n" + b"64\r\n" + b" " * 100 + b"\r\n"
        announced = head + b"Content-Length: 5000\r\n\r\n"
        for request in (chunked + (b"3e8\r\n" + b" " * 1000 + b"\r\n"), announced):
            assert (await exchange(client, request)).startswith(b"HTTP/1.1 413 ")


@asynccontextmanager
async def stopping(*signals: signal.Signals) -> AsyncIterator[tuple[httpx.AsyncClient, Process]]:
    """A server of its own, with one turn under way, whose drain goes on until a line is written to it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.api.stopping"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        port = int(await process.stdout.readline())
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=BOUND_S) as client:
            await client.post("/v1/turns", json={**HI, "background": True})
            for number in signals:
                process.send_signal(number)
                assert await process.stdout.readline() == b"draining\n"
            yield client, process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_first_signal_drains_while_requests_go_on_and_then_the_process_exits_0(
    number: signal.Signals,
) -> None:
    async with stopping(number) as (client, process):
        assert (await client.get("/readyz")).status_code == 503
        assert (await client.get("/v1/turns/turn_1")).json()["status"] == "running"
        async with client.stream("GET", "/v1/turns/turn_1/events") as answer:
            assert process.stdin is not None
            process.stdin.write(b"go\n")
            body = await answer.aread()
        assert [m.event for m in parse(body)] == ["turn.started", "turn.failed"]
        with anyio.fail_after(BOUND_S):
            assert await process.wait() == 0


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
async def test_a_second_signal_exits_at_once(number: signal.Signals, status: int) -> None:
    async with stopping(signal.SIGTERM) as (_, process):
        process.send_signal(number)
        with anyio.fail_after(BOUND_S):
            assert await process.wait() == status


def test_a_child_that_outlives_the_service_does_not_keep_its_port() -> None:
    host = "127.0.0.77"  # where nobody else takes ports: one that was just given up is soon another's
    listening = listen(host, 0, 30)
    listening.listen()
    port = listening.getsockname()[1]
    child_process = [sys.executable, "-c", "print('up', flush=True); input()"]
    pipe = subprocess.PIPE
    with subprocess.Popen(child_process, stdin=pipe, stdout=pipe, close_fds=False) as child:
        assert child.stdout is not None
        assert (
            child.stdout.readline() == b"up\n"
        )  # a spawned child closes what it does not inherit a little late
        listening.close()
        with listen(host, port, 30) as again:
            again.listen()
        child.communicate(b"\n")
