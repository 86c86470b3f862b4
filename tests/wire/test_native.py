"""The frames byte for byte, and as parsers that are not ours read them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from httpx_sse import EventSource
from openai._streaming import SSEDecoder

from app.domain.events import LogEntry
from app.domain.ids import TurnId
from app.wire.native import ConversationEncoder, NativeEncoder
from tests.wire.sse_parser import Message, parse

GOLDEN = Path(__file__).parent / "golden"
TURN = TurnId("turn_1")
EVENTS: list[tuple[str, dict[str, Any]]] = [
    (
        "turn.started",
        {"conversation_id": "conv_1", "agent": "assistant", "run": 1, "at": "2026-01-31T12:00:00.000Z"},
    ),
    ("message.started", {"item_id": "item_1", "agent": "assistant"}),
    ("message.delta", {"item_id": "item_1", "delta": "Hel"}),
    ("message.delta", {"item_id": "item_1", "delta": "lo\r\n\ndata: x\n\nid: 9\r: é\u2028\u0000"}),
    ("message.completed", {"item_id": "item_1", "text": "…", "refusal": None, "partial": False}),
    ("turn.completed", {"turn": {"id": "turn_1", "status": "completed"}}),
]
HEARTBEAT = b": ping\n"


def entries() -> list[LogEntry]:
    return [
        LogEntry(seq, kind, json.dumps({"type": kind, "seq": seq, "turn_id": TURN, **fields}).encode())
        for seq, (kind, fields) in enumerate(EVENTS, start=1)
    ]


def frames(encoder: NativeEncoder | ConversationEncoder) -> list[bytes]:
    return [frame for entry in entries() for frame in encoder.encode(entry)]


@pytest.mark.parametrize(
    ("golden", "encoder"),
    [("native.txt", NativeEncoder()), ("conversation.txt", ConversationEncoder(TURN))],
)
def test_the_frames_are_the_golden_ones(golden: str, encoder: NativeEncoder | ConversationEncoder) -> None:
    assert b"".join(frames(encoder)) == (GOLDEN / golden).read_bytes()


def test_lines_end_with_lf_alone_and_hold_one_event() -> None:
    for frame in frames(NativeEncoder()):
        assert b"\r" not in frame
        assert frame.endswith(b"\n\n")
        assert frame.count(b"\n\n") == 1
        assert frame.count(b"\ndata: ") == 1


def test_only_the_first_frame_of_a_log_says_when_to_retry() -> None:
    assert [b"retry: 2000\n" in frame for frame in frames(NativeEncoder())] == [True] + [False] * 5


def test_a_frame_is_made_once_for_each_protocol() -> None:
    (entry, *_) = entries()
    assert NativeEncoder().encode(entry)[0] is NativeEncoder().encode(entry)[0]
    assert ConversationEncoder(TURN).encode(entry)[0] is ConversationEncoder(TURN).encode(entry)[0]
    assert entry.frames.keys() == {"native", "conversation"}


def read_by_ours(stream: bytes) -> list[Message]:
    return parse(stream)


def read_by_httpx_sse(stream: bytes) -> list[Message]:
    response = httpx.Response(200, headers={"content-type": "text/event-stream"}, content=stream)
    return [Message(e.id, e.event, e.data) for e in EventSource(response).iter_sse()]


def read_by_openai(stream: bytes) -> list[Message]:
    def pieces() -> Iterator[bytes]:
        yield stream

    return [Message(e.id or "", e.event or "message", e.data) for e in SSEDecoder().iter_bytes(pieces())]


@pytest.mark.parametrize("read", [read_by_ours, read_by_httpx_sse, read_by_openai])
def test_three_parsers_read_the_same_events_and_nothing_of_heartbeats(read: object) -> None:
    assert callable(read)
    stream = HEARTBEAT + HEARTBEAT.join(frames(NativeEncoder())) + HEARTBEAT
    messages: list[Message] = read(stream)
    assert [m.id for m in messages] == ["1", "2", "3", "4", "5", "6"]
    assert [m.event for m in messages] == [kind for kind, _ in EVENTS]
    assert [json.loads(m.data)["seq"] for m in messages] == [1, 2, 3, 4, 5, 6]
    assert json.loads(messages[3].data)["delta"] == EVENTS[3][1]["delta"]


def test_a_stream_that_is_cut_anywhere_shows_whole_events_only() -> None:
    stream = b"".join(frames(NativeEncoder()))
    whole = parse(stream)
    for end in range(len(stream)):
        seen = parse(stream[:end])
        assert seen == whole[: len(seen)]
