"""The frames of a stream, byte for byte."""

import httpx_sse
import pytest

from tests.service.client import TurnwireClient
from tests.upstream.client import Scenario

pytestmark = pytest.mark.anyio
EXACT_TEXTS = {
    "injection": "x\n\nevent: turn.completed\ndata: {}\n\nid: 99\rretry: 1\r\n",
    "crlf-and-separators": "a\u2028b\u0085c\u2029d\re\nf",
    "surrogate-halves": "x\U0001f680y",
}


async def test_a_stream_has_the_headers_of_a_stream(client: TurnwireClient) -> None:
    async with client.stream("hello", headers={"accept-encoding": "gzip, br"}) as stream:
        await stream.rest()
    headers = stream.response.headers
    assert headers["content-type"] == "text/event-stream; charset=utf-8"
    assert headers["cache-control"] == "no-cache, no-transform"
    assert headers["x-accel-buffering"] == "no"
    assert "content-encoding" not in headers
    assert "connection" not in headers


async def test_every_frame_is_an_id_an_event_and_one_line_of_data(client: TurnwireClient) -> None:
    async with client.stream("hello") as stream:
        frames = await stream.rest()
    assert [frame.id for frame in frames] == [str(n) for n in range(1, len(frames) + 1)]
    assert [frame.seq for frame in frames] == list(range(1, len(frames) + 1))
    assert [frame.retry for frame in frames] == [2000] + [None] * (len(frames) - 1)
    second = frames[1]
    data = second.raw.split(b"data: ")[1]
    assert second.raw == b"id: 2\nevent: %b\ndata: %b" % (second.type.encode(), data)
    assert stream.raw == b"".join(frame.raw for frame in frames)


@pytest.mark.parametrize("case", EXACT_TEXTS)
async def test_whatever_the_text_holds_arrives_as_it_is(
    client: TurnwireClient, scenario: Scenario, case: str
) -> None:
    await scenario.replay(case)
    async with client.stream("hello") as stream:
        frames = await stream.rest()
    assert stream.text == EXACT_TEXTS[case]
    assert stream.types.count("turn.completed") == 1
    assert frames[-1].data["turn"]["output_text"] == EXACT_TEXTS[case]


async def test_another_parser_reads_the_same(client: TurnwireClient, scenario: Scenario) -> None:
    await scenario.replay("injection")
    async with client.stream("hello") as stream:
        ours = await stream.rest()
    path = f"/v1/turns/{stream.turn_id}/events"
    async with httpx_sse.aconnect_sse(client.http, "GET", path) as source:
        theirs = [event async for event in source.aiter_sse()]
    assert [(e.id, e.event, e.json()) for e in theirs] == [(f.id, f.type, f.data) for f in ours]
    assert theirs[0].retry == 2000


async def test_silence_is_broken_by_pings_that_are_no_messages(
    client: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script({"text": "late", "hold": scenario.gate("headers")})
    async with client.stream("hello") as stream:
        await stream.until("step.started")
        quiet = stream.raw
        await stream.until_ping()
        await stream.until_ping()
        await scenario.release("headers")
        frames = await stream.rest()
    assert stream.raw.startswith(quiet + b": ping\n: ping\n")
    assert stream.raw.replace(b": ping\n", b"") == b"".join(frame.raw for frame in frames)


async def test_all_listeners_get_the_same_bytes(client: TurnwireClient, scenario: Scenario) -> None:
    await scenario.script({"text": "one two three four", "hold": {"text:2": scenario.gate("text")}})
    async with client.stream("hello") as first:
        await first.until_text("one two ")
        async with client.events(first.turn_id) as second:
            await second.until_text("one two ")
            await scenario.release("text")
            await first.rest()
            await second.rest()
    late = await client.log(first.turn_id)
    assert [f.raw for f in first.frames] == [f.raw for f in second.frames] == [f.raw for f in late]


async def test_absent_values_are_null_and_never_missing(client: TurnwireClient, scenario: Scenario) -> None:
    await scenario.script({"tool_calls": [{"name": "lookup", "arguments": {"q": "kelp"}}]}, {"text": "Green."})
    async with client.stream("kelp?", agent="worker") as stream:
        frames = {frame.type: frame.data for frame in await stream.rest()}
    assert set(frames["tool_call.completed"]) >= {
        "call_id",
        "tool",
        "status",
        "output",
        "output_truncated",
        "error",
        "duration_ms",
    }
    assert frames["tool_call.completed"]["error"] is None
    assert frames["message.completed"]["refusal"] is None
    assert frames["message.completed"]["partial"] is False
    assert set(frames["turn.completed"]["turn"]) == {
        "id",
        "object",
        "conversation_id",
        "agent",
        "last_agent",
        "model",
        "status",
        "output_text",
        "output",
        "usage",
        "error",
        "pause",
        "cancel",
        "runs",
        "last_event_id",
        "metadata",
        "created_at",
        "started_at",
        "ended_at",
    }
