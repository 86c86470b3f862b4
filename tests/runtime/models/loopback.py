"""A loopback HTTP server that answers with exactly the bytes it was given, and then ends as it was told."""

import asyncio
import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

End = Literal["close", "reset", "hang"]

SSE = "text/event-stream; charset=utf-8"


@dataclass
class Answer:
    """`cuts`: offsets at which the body is handed to the network in pieces, one loop pass apart or more."""

    body: bytes = b""
    status: int = 200
    content_type: str = SSE
    headers: dict[str, str] = field(default_factory=dict)
    end: End = "close"
    cuts: Sequence[int] = ()
    chunked: bool = True
    hold_headers: bool = False


@dataclass
class Received:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class Loopback:
    """Answers requests with `answers` in order, further ones with the last. `async with` it."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[Received] = []
        self.connections = 0
        self.peer_left = asyncio.Event()
        """Set when a peer has closed a connection that was still being answered."""
        self.answering = asyncio.Event()
        """Set once all that an answer has was sent."""
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def __aenter__(self) -> "Loopback":
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        sent = await reader.readexactly(int(headers.get("content-length", 0)))
        self.requests.append(Received(head[0].split(" ")[1], headers, json.loads(sent or b"{}")))
        answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
        if answer.hold_headers:
            await self._wait_for_peer(reader)
            return False
        writer.write(_head(answer))
        for start, stop in zip((0, *answer.cuts), (*answer.cuts, len(answer.body)), strict=True):
            piece = answer.body[start:stop]
            if piece:
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if answer.chunked else piece)
            await writer.drain()
            if answer.cuts:
                await asyncio.sleep(0.002)  # apart on the network: two reads, not one
        self.answering.set()
        match answer.end:
            case "hang":
                await self._wait_for_peer(reader)
            case "reset":
                await asyncio.sleep(0.02)  # what was sent must arrive before the reset overtakes it
                writer.transport.abort()
            case "close" if answer.chunked:
                writer.write(b"0\r\n\r\n")
                await writer.drain()
                return True
        return False

    async def _wait_for_peer(self, reader: asyncio.StreamReader) -> None:
        self.answering.set()
        with contextlib.suppress(ConnectionError):
            await reader.read(1)
        self.peer_left.set()


def _head(answer: Answer) -> bytes:
    lines = [f"HTTP/1.1 {answer.status} Whatever", f"content-type: {answer.content_type}"]
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    lines.append("transfer-encoding: chunked" if answer.chunked else "connection: close")
    return "\r\n".join([*lines, "", ""]).encode()


def frames(*events: object, newline: str = "\n", done: bool = False) -> bytes:
    """An SSE body of JSON frames; a string is taken as it is."""
    texts = [e if isinstance(e, str) else json.dumps(e) for e in (*events, *(["[DONE]"] if done else []))]
    return "".join(f"data: {text}{newline}{newline}" for text in texts).encode()


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """A Chat Completions chunk."""
    choice: dict[str, Any] = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "model": "m", "choices": [choice], **more}


USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
USAGE_CHUNK = {"id": "c1", "object": "chat.completion.chunk", "choices": [], "usage": USAGE}


def text_answer(text: str = "All good.") -> Answer:
    """A healthy Chat Completions answer."""
    half = len(text) // 2
    body = frames(
        chunk({"role": "assistant", "content": text[:half]}),
        chunk({"content": text[half:]}),
        chunk(finish="stop"),
        USAGE_CHUNK,
        done=True,
    )
    return Answer(body)


def response_event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields}


def completed_event(output: list[dict[str, Any]] | None = None, **fields: Any) -> dict[str, Any]:
    usage = {
        "input_tokens": 11,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 7,
        "total_tokens": 18,
    }
    response = {"id": "resp_1", "status": "completed", "model": "m", "output": output or [], "usage": usage}
    return {"type": "response.completed", "response": response | fields}
