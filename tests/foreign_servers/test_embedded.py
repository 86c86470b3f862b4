"""Turns on the embedded model's own server: as the service starts it, and by both APIs that it speaks."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from app.runtime.local_model import MODEL_NAME, LocalModel
from tests.e2e.checks import check_log
from tests.service.client import TurnwireClient
from tests.service.process import ServiceProcess

pytestmark = pytest.mark.anyio
ANSWERS_WITHIN_S = 120


@pytest.fixture(scope="module")
def keyless_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    unset = {"OPENAI_API_KEY": None, "OPENAI_BASE_URL": None, "TURNWIRE_MODEL": None}
    with ServiceProcess(tmp_path_factory.mktemp("keyless"), "", **unset) as service:
        yield service
        service.check_log()


@pytest.fixture
async def embedded(keyless_service: ServiceProcess) -> AsyncIterator[TurnwireClient]:
    client = TurnwireClient(keyless_service.base_url)
    client.http.timeout = ANSWERS_WITHIN_S
    yield client
    await client.aclose()


@pytest.fixture(params=["chat_completions", "responses"])
async def on_its_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[TurnwireClient]:
    """A service that was given the server's address and key like those of any other."""
    model = LocalModel()
    endpoint = await model.ensure()
    service = ServiceProcess(
        tmp_path_factory.mktemp("given"),
        endpoint.base_url.removesuffix("/v1"),
        OPENAI_API_KEY=endpoint.api_key,
        TURNWIRE_MODEL=MODEL_NAME,
        TURNWIRE_MODEL_API=request.param,
    )
    try:
        await asyncio.to_thread(service.__enter__)
        client = TurnwireClient(service.base_url)
        client.http.timeout = ANSWERS_WITHIN_S
        yield client
        await client.aclose()
    finally:
        await asyncio.to_thread(service.kill)
        await model.stop()
    service.check_log()


async def test_text_comes_in_pieces_and_the_next_turn_goes_on(on_its_server: TurnwireClient) -> None:
    async with on_its_server.stream("Say hello.", agent="plain") as stream:
        frames = await stream.rest()
    turn = frames[-1].data["turn"]
    check_log(frames, await on_its_server.turn(turn["id"]))
    assert turn["status"] == "completed", turn["error"]
    assert stream.types.count("message.delta") > 1
    assert turn["usage"]["output_tokens"] > 0
    again = await on_its_server.run("Say goodbye.", agent="plain", conversation=turn["conversation_id"])
    assert again["status"] == "completed", again["error"]


async def test_structured_output_has_its_schema(embedded: TurnwireClient) -> None:
    turn = await embedded.run("What colour is grass?", agent="shaped")
    assert turn["status"] == "completed", turn["error"]
    assert list(turn["output"]) == ["answer"]


async def test_an_agent_with_tools_answers(embedded: TurnwireClient) -> None:
    turn = await embedded.run("Say hello.", agent="careful")
    assert turn["status"] == "completed", turn["error"]
    assert turn["output_text"]


async def test_a_limit_of_tokens_is_told(embedded: TurnwireClient) -> None:
    turn = await embedded.run("Tell a very long story.", agent="plain", max_output_tokens=5)
    assert (turn["status"], turn["error"]["code"]) == ("failed", "incomplete")


async def test_a_cancel_keeps_what_was_shown_and_frees_the_model(embedded: TurnwireClient) -> None:
    async with embedded.stream("Tell a very long story about the sea.", agent="plain") as stream:
        await stream.until("message.delta", 3)
        await embedded.cancel(stream.turn_id)
        frames = await stream.rest()
    assert frames[-1].type == "turn.cancelled"
    items = await embedded.items(stream.conversation_id)
    assert [item["role"] for item in items] == ["user", "assistant"]
    again = await embedded.run("Say hello.", agent="plain", conversation=stream.conversation_id)
    assert again["status"] == "completed", again["error"]
