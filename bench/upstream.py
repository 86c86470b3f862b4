"""The upstream that the measurements run on: a process of its own, cheap, that does what the input says.

The newest command in a request's body decides: `burst N` (deltas as fast as they are taken), `paced N GAP`
(a delta each GAP seconds; each is the machine's monotonic time at which it was written), `held TAG` (one delta,
then silence until the peer leaves: `GET /closed` tells when), `words N` (N deltas of four characters).
`GET /bytes/N` answers N bytes, for a comparison of what plain reading costs.
"""

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import uvloop

COMMAND = re.compile(rb"(burst|paced|words|held) (\w+)(?: ([\d.]+))?")
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
JsonObject = dict[str, Any]


class Responses:
    """The frames of an answer on the Responses wire."""

    _item: ClassVar[JsonObject] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "in_progress",
    }

    def start(self) -> bytes:
        response = self._response("in_progress", [], 0)
        added = {"type": "response.output_item.added", "output_index": 0, "item": self._item | {"content": []}}
        return _frame({"type": "response.created", "response": response}) + _frame(added)

    def delta(self, text: str) -> bytes:
        place = {"item_id": "msg_1", "output_index": 0, "content_index": 0, "logprobs": []}
        return _frame({"type": "response.output_text.delta", "sequence_number": 1, "delta": text, **place})

    def finish(self, text: str, count: int) -> bytes:
        part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        item = self._item | {"status": "completed", "content": [part]}
        done = {"type": "response.output_item.done", "output_index": 0, "item": item}
        response = self._response("completed", [item], count)
        return _frame(done) + _frame({"type": "response.completed", "response": response}) + END

    def _response(self, status: str, output: list[JsonObject], count: int) -> JsonObject:
        usage = {
            "input_tokens": 5,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": count,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 5 + count,
        }
        same = {"id": "resp_1", "object": "response", "created_at": 1, "model": "bench", "tools": []}
        same |= {"parallel_tool_calls": True, "tool_choice": "auto"}
        return {**same, "status": status, "output": output, "usage": usage}


class ChatCompletions:
    """The same on the Chat Completions wire."""

    _base: ClassVar[JsonObject] = {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "bench",
    }

    def start(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def delta(self, text: str) -> bytes:
        return self._chunk({"content": text})

    def finish(self, text: str, count: int) -> bytes:
        usage = {"prompt_tokens": 5, "completion_tokens": count, "total_tokens": 5 + count}
        last = _frame(self._base | {"choices": [], "usage": usage})
        return self._chunk({}, "stop") + last + _chunked(b"data: [DONE]\n\n") + END

    def _chunk(self, delta: JsonObject, finish: str | None = None) -> bytes:
        return _frame(self._base | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def _frame(payload: JsonObject) -> bytes:
    return _chunked(b"data: " + json.dumps(payload).encode() + b"\n\n")


def _chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Server:
    def __init__(self) -> None:
        self._closed: dict[str, float] = {}
        self._bursts: dict[tuple[type[object], int], bytes] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = re.search(rb"(?i)content-length: *(\d+)", head)
                body = await reader.readexactly(int(size[1]) if size else 0)
                await self._answer(head.split(b" ", 2)[1].decode(), body, reader, writer)
                if b"connection: close" in head.lower():
                    break
        except (asyncio.IncompleteReadError, OSError, RuntimeError):
            pass  # the peer has left: uvloop says so by a RuntimeError
        finally:
            writer.close()

    async def _answer(
        self, path: str, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if path.startswith("/bytes/"):
            return _write_whole(writer, b"x" * int(path.removeprefix("/bytes/")))
        if path == "/closed":
            return _write_whole(writer, json.dumps(self._closed).encode())
        wire = ChatCompletions() if path.endswith("/chat/completions") else Responses()
        *_, (kind, argument, gap) = COMMAND.findall(body) or [(b"words", b"4", b"")]
        writer.write(HEAD + wire.start())
        match kind:
            case b"burst":
                writer.write(self._burst(wire, int(argument)))
            case b"words":
                writer.write(b"".join([wire.delta("word")] * int(argument)))
                writer.write(wire.finish("word" * int(argument), int(argument)))
            case b"paced":
                await _pace(wire, writer, int(argument), float(gap))
            case _:
                writer.write(wire.delta("held"))
                await reader.read()
                self._closed[argument.decode()] = time.monotonic()
                raise ConnectionResetError
        await writer.drain()
        return None

    def _burst(self, wire: Responses | ChatCompletions, count: int) -> bytes:
        """Made once: what a burst costs here must not slow it."""
        key = (type(wire), count)
        if key not in self._bursts:
            words = [f"w{n} " for n in range(count)]
            deltas = b"".join(map(wire.delta, words))
            self._bursts[key] = deltas + wire.finish("".join(words), count)
        return self._bursts[key]


async def _pace(
    wire: Responses | ChatCompletions, writer: asyncio.StreamWriter, count: int, gap: float
) -> None:
    words: list[str] = []
    begin = time.monotonic()
    for number in range(count):
        await asyncio.sleep(begin + number * gap - time.monotonic())
        words.append(f"{time.monotonic():.6f} ")
        writer.write(wire.delta(words[-1]))
        await writer.drain()
    writer.write(wire.finish("".join(words), count))


def _write_whole(writer: asyncio.StreamWriter, body: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\ncontent-length: %d\r\n\r\n"
    writer.write(head % len(body) + body)


async def main() -> None:
    server = await asyncio.start_server(Server().serve, "127.0.0.1", 0, limit=1 << 26, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)  # ends when whoever started it does


@contextmanager
def upstream_process() -> Iterator[str]:
    """Its origin, for as long as the block runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.upstream"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


if __name__ == "__main__":
    uvloop.run(main())
