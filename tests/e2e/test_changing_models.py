"""A conversation that changes its provider or its wire: what one of them added never reaches the next."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.service.client import JsonObject, TurnwireClient
from tests.service.process import ServiceProcess
from tests.service.shapes import Shape, sent
from tests.upstream.client import Received, Scenario

pytestmark = pytest.mark.anyio
Serve = Callable[..., AbstractAsyncContextManager[TurnwireClient]]
CALL = {"name": "lookup", "arguments": {"q": "kelp"}}
USED = {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18}


@pytest.fixture
def serve(tmp_path: Path, upstream_origin: str, scenario: Scenario) -> Serve:
    """The service on one folder, each time as it is configured: an upstream is known by its host."""

    @asynccontextmanager
    async def served(host: str, wire: str, **settings: Any) -> AsyncIterator[TurnwireClient]:
        url = f"{upstream_origin.replace('127.0.0.1', host)}/v1"
        settings |= {"OPENAI_BASE_URL": url, "TURNWIRE_MODEL_API": wire}
        with ServiceProcess(tmp_path, upstream_origin, **settings) as service:
            client = TurnwireClient(service.base_url, model=scenario.model)
            yield client
            await client.aclose()
            service.check_log()

    return served


def everything(text: str) -> JsonObject:
    """An answer with all that a Responses provider may add to what it says."""
    annotation = {"type": "url_citation", "url": "https://kelp.example", "title": "Kelp", "start_index": 0}
    part = {"type": "output_text", "text": text, "annotations": [annotation | {"end_index": 1}]}
    output = [
        {"type": "reasoning", "id": "rs_a", "summary": [], "encrypted_content": "gibberish"},
        {"type": "web_search_call", "id": "ws_a", "status": "completed", "action": {"type": "search"}},
        {"type": "message", "id": "msg_a", "role": "assistant", "status": "completed", "content": [part]},
    ]
    return {
        "body": {"id": "resp_a", "object": "response", "status": "completed", "output": output, "usage": USED}
    }


def foreign_marks(request: Received) -> list[str]:
    """What in a request only the first provider knows."""
    body = json.dumps(request.history)
    return [m for m in ("rs_a", "ws_a", "msg_a", "gibberish", "web_search", "kelp.example") if m in body]


async def test_each_provider_gets_back_its_own_and_of_the_others_what_was_said(
    serve: Serve, scenario: Scenario
) -> None:
    chat = scenario.gate("chat")
    said: list[Shape] = [("user", "one"), ("assistant", "1"), ("user", "two")]
    async with serve("127.0.0.1", "responses") as client:
        await scenario.script(everything("1"))
        await client.run("one", conversation=chat)
    async with serve("localhost", "responses") as client:
        await scenario.script({"reasoning": "Hm.", "tool_calls": [CALL]}, {"text": "2"})
        assert (await client.run("two", conversation=chat, agent="worker"))["status"] == "completed"
        first, second = (await scenario.requests())[-2:]
        assert (sent(first.history), foreign_marks(first), first.problems) == (said, [], [])
        thought = next(item for item in second.history if item.get("type") == "reasoning")
        assert (foreign_marks(second), second.problems) == ([], [])
        said += [("call", "lookup", '{"q":"kelp"}'), ("output", "kelp: found"), ("assistant", "2")]
    async with serve("localhost", "chat_completions") as client:
        await scenario.script({"reasoning": "So.", "text": "3"})
        assert (await client.run("three", conversation=chat))["status"] == "completed"
        last = await scenario.last_request()
        assert (sent(last.history), foreign_marks(last), last.problems) == ([*said, ("user", "three")], [], [])
    async with serve("127.0.0.1", "responses") as client:
        assert (await client.run("four", conversation=chat))["status"] == "completed"
        last = await scenario.last_request()
        assert last.problems == []
        assert set(foreign_marks(last)) == {"rs_a", "ws_a", "msg_a", "gibberish", "web_search", "kelp.example"}
        assert "So." not in str(last.history)
        assert thought["id"] not in str(last.history)
        assert [s for s in sent(last.history) if s[0] in ("user", "assistant", "call", "output")] == [
            *said,
            ("user", "three"),
            ("assistant", "3"),
            ("user", "four"),
        ]


@pytest.mark.parametrize(("policy", "goes_back"), [(None, True), ("preserve", True), ("omit", False)])
async def test_whether_reasoning_keeps_its_id_is_a_setting(
    serve: Serve, scenario: Scenario, policy: str | None, goes_back: bool
) -> None:
    settings = {"TURNWIRE_REASONING_IDS": policy} if policy else {}
    async with serve("127.0.0.1", "responses", **settings) as client:
        await scenario.script({"reasoning": "Hm.", "tool_calls": [CALL]}, {"text": "1"}, {"text": "2"})
        turn = await client.run("one", agent="worker")
        await client.run("two", conversation=turn["conversation_id"])
    for request in (await scenario.requests())[1:]:
        thoughts = [item for item in request.history if item.get("type") == "reasoning"]
        assert ["id" in thought for thought in thoughts] == [goes_back]
        assert request.problems == []
