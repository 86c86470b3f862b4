"""Time-outs, cuts and refusals, and that nothing is left open after any of them."""

import asyncio
import contextlib
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from agents import ModelSettings

from app.runtime.failures import UpstreamFailure
from app.runtime.models.model import UpstreamModel
from app.runtime.models.transport import FixedEndpoint, Upstream, is_loopback, retry_after
from tests.runtime.models.harness import QUICK, ask, exchange, recording, upstream_of
from tests.runtime.models.loopback import Answer, Loopback, chunk, frames, text_answer
from tests.runtime.models.recorder import RecordingScope

pytestmark = pytest.mark.anyio

PART = frames(chunk({"content": "Part of an ans"}))
IMPATIENT = replace(QUICK, first_byte_s=0.15, idle_s=0.15)


async def failed(*answers: Answer, **options: object) -> UpstreamFailure:
    _, _, failure = await exchange(*answers, **options)  # type: ignore[arg-type]
    assert isinstance(failure, UpstreamFailure)
    return failure


async def test_a_server_that_answers_nothing_is_left_in_time() -> None:
    async with Loopback(Answer(hold_headers=True)) as server, upstream_of(server, limits=IMPATIENT) as upstream:
        with pytest.raises(UpstreamFailure) as caught:
            await ask(UpstreamModel(upstream, "m"))
        await asyncio.wait_for(server.peer_left.wait(), 2)
    assert caught.value.code == "upstream_timeout"
    assert "0.15 s" in caught.value.message


@pytest.mark.parametrize("body", [b"", PART])
async def test_silence_ends_a_stream_and_closes_its_socket(body: bytes) -> None:
    async with Loopback(Answer(body, end="hang")) as server, upstream_of(server, limits=IMPATIENT) as upstream:
        async with recording() as scope:
            with pytest.raises(UpstreamFailure) as caught:
                await ask(UpstreamModel(upstream, "m"))
        await asyncio.wait_for(server.peer_left.wait(), 2)
    assert caught.value.code == "upstream_timeout"
    assert scope.last.texts("text") == (["Part of an ans"] if body else [])


async def test_reads_that_come_in_time_keep_a_slow_stream_alive() -> None:
    body = frames(*[chunk({"content": "x"}) for _ in range(40)], chunk(finish="stop"))
    slow = Answer(body, cuts=range(50, len(body), 50))
    _, scope, failure = await exchange(slow, limits=replace(QUICK, first_byte_s=1, idle_s=1))
    assert failure is None
    assert scope.last.text == "x" * 40


async def test_others_are_served_while_a_server_floods() -> None:
    count = 20_000
    flood = Answer(frames(*[chunk({"content": "x"}) for _ in range(count)], chunk(finish="stop")))
    taken_until: list[int] = []

    async def others(scope: RecordingScope) -> None:
        while True:
            taken_until.append(sum(len(call.told) for call in scope.calls))
            await asyncio.sleep(0)

    async with Loopback(flood) as server, upstream_of(server) as upstream, recording() as scope:
        waiting = asyncio.create_task(others(scope))
        await ask(UpstreamModel(upstream, "m"))
        waiting.cancel()
    assert scope.last.text == "x" * count
    assert max(after - before for before, after in pairwise(taken_until)) < 1200


async def test_a_cut_in_mid_stream_is_a_protocol_failure_and_what_was_shown_stays() -> None:
    for cut in (Answer(PART, end="reset"), Answer(PART, end="reset", chunked=False)):
        server, scope, failure = await exchange(cut, limits=replace(QUICK, retries=3))
        assert isinstance(failure, UpstreamFailure)
        assert failure.code == "upstream_protocol"
        assert scope.last.texts("text") == ["Part of an ans"]
        assert len(server.requests) == 1


@pytest.mark.parametrize("end", ["hang", "reset"])
async def test_an_answer_that_is_whole_does_not_depend_on_a_clean_end(end: str) -> None:
    events = [chunk({"content": "All good."}), chunk(finish="stop")]
    for done in (True, False):
        answer = Answer(frames(*events, done=done), end=end)  # type: ignore[arg-type]
        _, scope, failure = await exchange(answer, limits=replace(QUICK, idle_s=0.2))
        assert failure is None
        assert scope.last.text == "All good."


async def test_nobody_listening_is_unreachable() -> None:
    async with Loopback(text_answer()) as server:
        url = server.url
    upstream = Upstream("gone", "responses", FixedEndpoint(url, None), limits=QUICK, trust_env=False)
    with pytest.raises(UpstreamFailure) as caught:
        await ask(UpstreamModel(upstream, "m"))
    await upstream.aclose()
    assert caught.value.code == "upstream_unreachable"


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/v1", "nonsense", "http://", "http://[::1"])
async def test_a_url_that_is_none_is_unreachable(url: str) -> None:
    upstream = Upstream("wrong", "responses", FixedEndpoint(url, None), limits=QUICK, trust_env=False)
    with pytest.raises(UpstreamFailure) as caught:
        await ask(UpstreamModel(upstream, "m"))
    await upstream.aclose()
    assert caught.value.code == "upstream_unreachable"


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (400, b'{"error": {"message": "No tool call found.", "code": null}}', "upstream_rejected"),
        (400, b'{"error": {"message": "m", "code": "context_length_exceeded"}}', "context_length_exceeded"),
        (401, b'{"error": {"message": "Incorrect API key provided: key-EXAMPLE-0000."}}', "upstream_auth"),
        (403, b"no", "upstream_auth"),
        (404, b'{"detail": "Not Found"}', "upstream_rejected"),
        (413, b"", "upstream_rejected"),
        (422, b'{"detail": [{"loc": ["body", "x"], "msg": "bad"}]}', "upstream_rejected"),
        (429, b'{"error": {"message": "Rate limit reached.", "code": "rate_limit_exceeded"}}', "rate_limited"),
        (500, b"", "upstream_error"),
        (502, b"<html><h1>502 Bad Gateway</h1></html>", "upstream_error"),
        (302, b"", "upstream_rejected"),
    ],
)
async def test_a_refusal_is_mapped_by_what_it_says(status: int, body: bytes, code: str) -> None:
    failure = await failed(
        Answer(body, status, "application/json", headers={"location": "http://127.0.0.1:1/"})
    )
    assert failure.code == code
    assert str(status) in failure.message
    assert "<" not in failure.message
    assert "EXAMPLE" not in failure.message


async def test_our_own_key_is_never_repeated() -> None:
    key = "plain words as key"
    bodies = (
        Answer(f'{{"error": "the {key} is wrong"}}'.encode(), 401),
        Answer(frames({"error": f"bad {key}"})),
    )
    for answer in bodies:
        async with Loopback(answer) as server:
            endpoint = FixedEndpoint(server.url, key)
            async with upstream_of(server, endpoint=endpoint) as upstream:
                with pytest.raises(UpstreamFailure) as caught:
                    await ask(UpstreamModel(upstream, "m"))
        assert key not in str(caught.value) + caught.value.message
        assert key not in repr(await endpoint.access())


async def test_refusals_leave_no_connection_behind() -> None:
    page = Answer(b"<html>" + b"x" * 200_000, 502, "text/html")
    async with Loopback(*[page] * 30, text_answer()) as server, upstream_of(server) as upstream:
        async with recording() as scope:
            for _ in range(30):
                with pytest.raises(UpstreamFailure):
                    await ask(UpstreamModel(upstream, "m"))
            await ask(UpstreamModel(upstream, "m"))
        assert scope.last.text == "All good."
        assert len(server._tasks) <= 1


async def test_a_connection_is_used_again() -> None:
    async with Loopback(text_answer()) as server, upstream_of(server) as upstream:
        for _ in range(5):
            await ask(UpstreamModel(upstream, "m"))
        assert len(server.requests) == 5
        assert server.connections == 1


async def test_a_cancelled_call_closes_its_socket_at_once() -> None:
    for answer in (Answer(PART, end="hang"), Answer(hold_headers=True)):
        async with Loopback(answer) as server, upstream_of(server) as upstream, recording() as scope:
            task = asyncio.create_task(ask(UpstreamModel(upstream, "m")))
            await asyncio.wait_for(server.answering.wait(), 2)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await asyncio.wait_for(server.peer_left.wait(), 0.5)
            assert scope.last.failures == [None]


async def test_an_extra_query_and_headers_are_sent() -> None:
    async with Loopback(text_answer()) as server:
        endpoint = FixedEndpoint(server.url + "?api-version=1", "k-1")
        async with upstream_of(server, endpoint=endpoint) as upstream:
            settings = ModelSettings(
                extra_query={"trace": True, "tag": ["a", "b"]}, extra_headers={"X-Team": "blue"}
            )
            await ask(UpstreamModel(upstream, "m"), settings=settings)
        assert server.requests[0].path == "/v1/chat/completions?api-version=1&trace=true&tag=a&tag=b"
        assert server.requests[0].headers["x-team"] == "blue"


def test_retry_after_is_seconds_a_date_or_nothing() -> None:
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert retry_after({"retry-after": "7"}, now) == 7
    assert retry_after({"retry-after": "Thu, 01 Jan 2026 12:00:30 GMT"}, now) == 30
    assert retry_after({"retry-after": "Thu, 01 Jan 2026 11:00:00 GMT"}, now) == 0
    assert retry_after({"retry-after-ms": "250"}, now) == 0.25
    assert retry_after({"retry-after-ms": "250", "retry-after": "7"}, now) == 0.25
    assert retry_after({"retry-after-ms": "soon", "retry-after": "7"}, now) == 7
    for nonsense in ("soon", "nan", "inf", ""):
        assert retry_after({"retry-after": nonsense}, now) is None
    assert retry_after({}, now) is None


def test_loopback_is_recognised() -> None:
    assert all(is_loopback(f"http://{h}:8080/v1") for h in ("127.0.0.1", "localhost", "[::1]", "127.9.9.9"))
    assert not any(
        is_loopback(u) for u in ("https://api.openai.com/v1", "nonsense", "http://10.0.0.1", "http://[x")
    )
