"""Reading a stream of events as the contract says it is written, every byte kept."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx

JsonObject = dict[str, Any]
PING = b": ping\n"
TERMINAL = ("turn.completed", "turn.failed", "turn.cancelled")


@dataclass(frozen=True, slots=True)
class Frame:
    """One event on the wire: `raw` is its exact bytes, without the heartbeats around it."""

    raw: bytes
    id: str
    type: str
    data: JsonObject
    retry: int | None = None

    @property
    def seq(self) -> int:
        return int(self.data["seq"])


def parsed(raw: bytes) -> Frame:
    """A frame from its bytes. Raises AssertionError for what the contract does not allow."""
    assert raw.endswith(b"\n\n"), raw
    assert b"\r" not in raw, raw
    lines = raw[:-2].decode("utf-8").split("\n")
    fields = dict(line.split(": ", 1) for line in lines)
    assert set(fields) <= {"retry", "id", "event", "data"}, fields
    assert len(fields) == len(lines), lines
    data = json.loads(fields["data"])
    assert data["type"] == fields["event"], raw
    assert list(data)[:3] == ["type", "seq", "turn_id"], raw
    return Frame(raw, fields["id"], fields["event"], data, int(fields["retry"]) if "retry" in fields else None)


class EventStream:
    """The events of one response, in order. `pings` counts the heartbeats between them."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.frames: list[Frame] = []
        self.pings = 0
        self._received: list[bytes] = []
        self._waiting = bytearray()
        self._searched = 0
        self._parts = response.aiter_raw()

    def __aiter__(self) -> AsyncIterator[Frame]:
        return self

    async def __anext__(self) -> Frame:
        """The next frame; ends where the response ends. A response that is cut raises httpx.TransportError."""
        while (frame := self._take()) is None:
            await self._read()
        self.frames.append(frame)
        return frame

    async def until_ping(self) -> None:
        """Wait for a heartbeat; no frame may come before it."""
        before = self.pings
        while self.pings == before:
            await self._read()
            self._skip_pings()
            assert not self._waiting, f"a frame before the heartbeat: {self._waiting!r}"

    async def until(self, kind: str, count: int = 1) -> list[Frame]:
        """Read on until the nth frame of this type (counted from the stream's start); all frames so far."""
        while sum(frame.type == kind for frame in self.frames) < count:
            try:
                await anext(self)
            except StopAsyncIteration:
                raise AssertionError(f"no {kind} ({count}) among {self.types}") from None
        return self.frames

    async def until_text(self, text: str) -> list[Frame]:
        """Read on until the message deltas add up to this text."""
        while self.text != text:
            assert text.startswith(self.text), f"{self.text!r} is no beginning of {text!r}"
            await self.until("message.delta", sum(f.type == "message.delta" for f in self.frames) + 1)
        return self.frames

    async def rest(self) -> list[Frame]:
        """Read to the end; all frames of the stream."""
        async for _ in self:
            pass
        return self.frames

    @property
    def raw(self) -> bytes:
        """Every byte so far, as it came."""
        return b"".join(self._received)

    @property
    def types(self) -> list[str]:
        return [frame.type for frame in self.frames]

    @property
    def text(self) -> str:
        return "".join(f.data["delta"] for f in self.frames if f.type == "message.delta")

    @property
    def turn_id(self) -> str:
        return self.response.headers["x-turn-id"]

    @property
    def conversation_id(self) -> str:
        return self.response.headers["x-conversation-id"]

    async def _read(self) -> None:
        try:
            part = await anext(self._parts)
        except StopAsyncIteration:
            assert not self._waiting, f"the stream ends within a frame: {self._waiting!r}"
            raise
        self._received.append(part)
        self._waiting += part

    def _skip_pings(self) -> None:
        while self._waiting.startswith(PING):
            del self._waiting[: len(PING)]
            self.pings += 1

    def _take(self) -> Frame | None:
        self._skip_pings()
        end = self._waiting.find(b"\n\n", self._searched)
        if end < 0:
            self._searched = max(0, len(self._waiting) - 1)
            return None
        raw = bytes(self._waiting[: end + 2])
        del self._waiting[: end + 2]
        self._searched = 0
        return parsed(raw)
