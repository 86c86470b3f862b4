"""The yardstick: the SDK's own loop in a script, as its documentation shows it.

    python -m bench.bare_loop BASE_URL WIRE INPUT TURNS

`async for … in Runner.run_streamed(…).stream_events()` with the stock client, some turns side by side. Prints
the CPU of the process in microseconds for each text delta, and how many deltas came.
"""

import asyncio
import sys
import time

from agents import (
    Agent,
    Model,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from openai.types.responses import ResponseTextDeltaEvent


async def turn(model: Model, said: str) -> int:
    result = Runner.run_streamed(
        Agent("bench", instructions="Answer.", model=model), said, run_config=RunConfig(tracing_disabled=True)
    )
    deltas = 0
    async for event in result.stream_events():
        if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent):
            deltas += 1
    return deltas


async def main(base_url: str, wire: str, said: str, turns: int) -> None:
    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0)
    model: Model = (
        OpenAIResponsesModel("bench", client)
        if wire == "responses"
        else OpenAIChatCompletionsModel("bench", client)
    )
    await turn(model, "words 20")  # what is made once is not counted
    before = time.process_time()
    deltas = sum(await asyncio.gather(*(turn(model, said) for _ in range(turns))))
    print((time.process_time() - before) / deltas * 1e6, deltas)
    await client.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
