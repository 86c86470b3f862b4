"""CPU for each text delta of a model call: our model class against the stock client, on one loopback upstream.

    python bench/model_stream.py [responses|chat_completions]

Each side runs the SDK's own `Runner.run_streamed` to its end, in this process; the upstream is another one, so
that what it spends is not counted. `burst` is 3,000 deltas as fast as they come, `paced` is 20 turns side by
side with 25 deltas a second each. A figure a line; the ratio is what counts, the rest depends on the machine.
"""

import asyncio
import json
import multiprocessing
import sys
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from typing import Any, get_args

import uvloop
from agents import Agent, Model, OpenAIChatCompletionsModel, OpenAIResponsesModel, RunConfig, Runner
from openai import AsyncOpenAI

from app.runtime.models.model import UpstreamModel
from app.runtime.models.transport import FixedEndpoint, Upstream, Wire

BURST = 3_000
PACED_TURNS, PACED_DELTAS, PACED_GAP_S = 20, 75, 0.04
ROUNDS = 5


def frame(payload: dict[str, Any]) -> bytes:
    body = b"data: " + json.dumps(payload).encode() + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(body), body)


def bodies(wire: Wire, deltas: int) -> tuple[bytes, list[bytes], bytes]:
    """What comes before the deltas, the deltas, and what comes after."""
    if wire == "chat_completions":
        base = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}

        def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
            return frame({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

        usage = {"prompt_tokens": 5, "completion_tokens": deltas, "total_tokens": 5 + deltas}
        end = chunk({}, "stop") + frame({**base, "choices": [], "usage": usage})
        return chunk({"role": "assistant"}), [chunk({"content": f"w{i} "}) for i in range(deltas)], end
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    text = "".join(f"w{i} " for i in range(deltas))
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    response = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "m",
        "output": [message],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 5,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": deltas,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 5 + deltas,
        },
    }
    added = {"type": "response.output_item.added", "output_index": 0, "item": {**message, "content": []}}
    start = frame({"type": "response.created", "response": {**response, "output": []}}) + frame(added)
    delta = {"type": "response.output_text.delta", **place, "logprobs": []}
    middle = [frame({**delta, "sequence_number": i, "delta": f"w{i} "}) for i in range(deltas)]
    done = {"type": "response.output_item.done", "output_index": 0, "item": message}
    return start, middle, frame(done) + frame({"type": "response.completed", "response": response})


async def upstream(wire: Wire, pipe: Connection) -> None:
    burst, paced = bodies(wire, BURST), bodies(wire, PACED_DELTAS)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        try:
            while True:
                request = await reader.readuntil(b"\r\n\r\n")
                size = next(line for line in request.lower().split(b"\r\n") if b"content-length" in line)
                body = await reader.readexactly(int(size.split(b":")[1]))
                start, middle, end = paced if b"paced" in body else burst
                writer.write(head + start)
                for piece in middle:
                    writer.write(piece)
                    if b"paced" in body:
                        await asyncio.sleep(PACED_GAP_S)
                    await writer.drain()
                writer.write(end + b"0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    pipe.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def run_upstream(wire: Wire, pipe: Connection) -> None:
    asyncio.run(upstream(wire, pipe))


async def turn(model: Model, input: str) -> None:
    agent = Agent("bench", model=model)
    result = Runner.run_streamed(agent, input, run_config=RunConfig(tracing_disabled=True))
    async for _ in result.stream_events():
        pass
    assert str(result.final_output).endswith(" ")


async def burst(model: Model) -> int:
    await turn(model, "burst")
    return BURST


async def paced(model: Model) -> int:
    await asyncio.gather(*(turn(model, "paced") for _ in range(PACED_TURNS)))
    return PACED_TURNS * PACED_DELTAS


async def cpu_per_delta(load: Callable[[Model], Awaitable[int]], model: Model, rounds: int) -> float:
    """Microseconds of this process's CPU, the best of the rounds."""
    best = float("inf")
    for _ in range(rounds):
        before = time.process_time()
        deltas = await load(model)
        best = min(best, (time.process_time() - before) / deltas)
    return best * 1e6


async def measure(wire: Wire, url: str) -> None:
    client = AsyncOpenAI(base_url=url, api_key="none", max_retries=0)
    stock: Model = (
        OpenAIResponsesModel("m", client) if wire == "responses" else OpenAIChatCompletionsModel("m", client)
    )
    server = Upstream("bench", wire, FixedEndpoint(url, None), trust_env=False)
    ours = UpstreamModel(server, "m")
    for model in (stock, ours):
        await turn(model, "paced")
    for name, load, rounds in (("burst", burst, ROUNDS), ("paced", paced, 2)):
        theirs = await cpu_per_delta(load, stock, rounds)
        mine = await cpu_per_delta(load, ours, rounds)
        print(f"{wire} {name}: stock {theirs:.1f} us, ours {mine:.1f} us, ratio {mine / theirs:.3f}")
    await server.aclose()
    await client.close()


def main(wires: list[str]) -> None:
    for wire in wires or list(get_args(Wire)):
        here, there = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(
            target=run_upstream, args=(wire, there), daemon=True
        )
        process.start()
        try:
            uvloop.run(measure(wire, f"http://127.0.0.1:{here.recv()}/v1"))  # type: ignore[arg-type]
        finally:
            process.terminate()
            process.join()


if __name__ == "__main__":
    main(sys.argv[1:])
