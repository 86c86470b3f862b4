"""A listener of a stream, as ASGI sees it: what it gets, when, and how it ends."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest
from starlette.types import Message

from app.api.sse import EventStream
from app.api.streaming import CONNECTION, PIECE, Streamed, StreamedAnswer, StreamLimits
from app.domain.ports import LogCut
from app.errors import Overloaded, StoreUnavailable
from app.observability.metrics import Metrics
from tests.bounds import BOUND_S

pytestmark = pytest.mark.anyio

PATIENT = StreamLimits(heartbeat_s=60, stall_s=60)


class Peer:
    """The server's side of one connection, driven by the test."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self._change = asyncio.Condition()
        self.gone = asyncio.Event()
        self.takes = asyncio.Event()
        self.takes.set()
        self.aborted = False
        self.scope: dict[str, Any] = {
            "type": "http",
            "method": "GET",
            "extensions": {CONNECTION: {"abort": self._abort}},
        }

    def _abort(self) -> None:
        self.aborted = True
        self.gone.set()

    async def receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        async with self._change:
            self.sent.append(message)
            self._change.notify_all()
        await self.takes.wait()

    @property
    def body(self) -> bytes:
        return b"".join(m.get("body", b"") for m in self.sent)

    @property
    def ended(self) -> bool:
        return bool(self.sent) and self.sent[-1].get("more_body") is False

    async def until(self, count: int) -> None:
        """Wait until that many messages were sent."""
        async with self._change:
            await self._change.wait_for(lambda: len(self.sent) >= count)


class Source:
    """Frames that come when the test says so, and what became of the generator."""

    def __init__(self) -> None:
        self.closed = False
        self._frames: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()

    def give(self, *frames: bytes | Exception | None) -> None:
        for frame in frames:
            self._frames.put_nowait(frame)

    async def frames(self) -> AsyncGenerator[bytes, None]:
        try:
            while (frame := await self._frames.get()) is not None:
                if isinstance(frame, Exception):
                    raise frame
                yield frame
        finally:
            self.closed = True


def events(source: Source, limits: StreamLimits = PATIENT, metrics: Metrics | None = None) -> EventStream:
    return EventStream(Streamed(source.frames(), limits, metrics or Metrics()), {})


async def run(answer: Any, peer: Peer) -> None:
    with anyio.fail_after(BOUND_S):
        await answer(peer.scope, peer.receive, peer.send)


async def test_frames_pass_unchanged_and_the_stream_ends_right_after_the_last() -> None:
    source, peer = Source(), Peer()
    source.give(b"id: 1\ndata: {}\n\n", b"id: 2\ndata: {}\n\n", None)
    await run(events(source), peer)
    assert [m.get("body") for m in peer.sent] == [None, b"id: 1\ndata: {}\n\n", b"id: 2\ndata: {}\n\n", b""]
    assert peer.ended
    assert source.closed


async def test_the_headers_ask_for_no_buffering_and_set_nothing_hop_by_hop() -> None:
    source, peer = Source(), Peer()
    source.give(None)
    await run(events(source), peer)
    headers = dict(peer.sent[0]["headers"])
    assert headers == {
        b"content-type": b"text/event-stream; charset=utf-8",
        b"cache-control": b"no-cache, no-transform",
        b"x-accel-buffering": b"no",
    }


async def test_a_stream_opens_before_its_first_event() -> None:
    source, peer = Source(), Peer()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(run(events(source), peer))
        await peer.until(1)
        assert peer.sent[0]["status"] == 200
        source.give(None)


async def test_silence_is_broken_by_a_comment_line_and_nothing_else() -> None:
    source, peer = Source(), Peer()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(run(events(source, StreamLimits(0.02, 60)), peer))
        await peer.until(3)
        source.give(b"data: 1\n\n", None)
    pings, rest = peer.body.split(b"data")
    assert set(pings.split(b"\n")) == {b": ping", b""}
    assert pings == b": ping\n" * pings.count(b"\n")
    assert rest == b": 1\n\n"


async def test_nothing_breaks_in_while_events_flow() -> None:
    source, peer = Source(), Peer()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(run(events(source, StreamLimits(0.2, 60)), peer))
        for _ in range(30):
            source.give(b"x")
            await asyncio.sleep(0.01)
        source.give(None)
    assert peer.body == b"x" * 30


async def test_text_has_no_filler_and_waiting_json_begins_with_spaces() -> None:
    for filler, kind in ((None, "text/plain"), (b" ", "application/json")):
        source, peer = Source(), Peer()
        streamed = Streamed(source.frames(), StreamLimits(0.02, 60), Metrics())
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(run(StreamedAnswer(streamed, kind, {}, filler), peer))
            await peer.until(3 if filler else 1)
            if filler is None:
                await asyncio.sleep(0.1)
            source.give(b"{}", None)
        assert peer.body.lstrip(b" ") == b"{}"
        assert peer.body.startswith(filler or b"{")
        assert b"content-length" not in dict(peer.sent[0]["headers"])


async def test_much_is_sent_in_pieces_so_that_little_is_buffered() -> None:
    source, peer = Source(), Peer()
    source.give(b"y" * (3 * PIECE + 1), None)
    await run(events(source), peer)
    assert [len(m["body"]) for m in peer.sent[1:]] == [PIECE, PIECE, PIECE, 1, 0]


async def test_a_listener_that_takes_nothing_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    source, peer, metrics = Source(), Peer(), Metrics()
    source.give(b"1", b"2")
    peer.takes.clear()
    await run(events(source, StreamLimits(60, 0.05), metrics), peer)
    assert peer.aborted
    assert not peer.ended
    assert source.closed
    assert b"turnwire_listener_stalls_total 1.0" in metrics.render()
    assert [r.getMessage() for r in caplog.records] == ["stream.cut"]


async def test_a_listener_that_takes_no_heartbeat_is_cut() -> None:
    source, peer = Source(), Peer()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(run(events(source, StreamLimits(0.02, 0.05)), peer))
        await peer.until(1)
        peer.takes.clear()
    assert peer.aborted
    assert source.closed


async def test_a_listener_that_leaves_is_let_go_at_once(caplog: pytest.LogCaptureFixture) -> None:
    source, peer = Source(), Peer()
    source.give(b"1")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(run(events(source), peer))
        await peer.until(2)
        peer.gone.set()
    assert source.closed
    assert not peer.aborted
    assert not caplog.records


@pytest.mark.parametrize("error", [LogCut(), StoreUnavailable("gone"), RuntimeError("a defect")])
async def test_a_stream_that_fails_is_cut_and_never_looks_whole(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    source, peer = Source(), Peer()
    source.give(b"1", error)
    await run(events(source), peer)
    assert peer.aborted
    assert not peer.ended
    assert source.closed
    (record,) = caplog.records
    assert bool(record.exc_info) == isinstance(error, RuntimeError)


async def test_an_error_before_the_first_event_is_raised_for_a_problem_answer() -> None:
    for raised, expected in ((Overloaded("full"), Overloaded), (LogCut(), StoreUnavailable)):
        source, peer = Source(), Peer()
        source.give(raised)
        with pytest.raises(expected):
            await run(events(source), peer)
        assert not peer.sent


async def test_a_cut_under_another_server_returns_without_the_last_chunk() -> None:
    source, peer = Source(), Peer()
    peer.scope.pop("extensions")
    source.give(b"1", LogCut())
    await run(events(source), peer)
    assert not peer.ended


async def test_head_gets_the_headers_and_begins_no_stream() -> None:
    source, peer = Source(), Peer()
    peer.scope["method"] = "HEAD"
    await run(events(source), peer)
    assert [m["type"] for m in peer.sent] == ["http.response.start", "http.response.body"]
    assert peer.ended


async def test_a_cancelled_server_task_closes_the_source(caplog: pytest.LogCaptureFixture) -> None:
    source, peer = Source(), Peer()
    task = asyncio.create_task(run(events(source), peer))
    await peer.until(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert source.closed
    assert not caplog.records


def test_streams_work_on_one_event_loop_after_the_other() -> None:
    async def once() -> None:
        source, peer = Source(), Peer()
        source.give(b"1", None)
        await run(events(source), peer)
        assert peer.ended

    asyncio.run(once())
    asyncio.run(once())
