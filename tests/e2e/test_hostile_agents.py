"""Agents and tools that raise what ends a process, or a task: their turn ends, and nothing else."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.e2e.checks import check_log
from tests.service.client import TurnwireClient
from tests.service.process import ServiceProcess
from tests.upstream.client import Scenario

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def hostile_service(tmp_path_factory: pytest.TempPathFactory, upstream_origin: str) -> Iterator[ServiceProcess]:
    folder = tmp_path_factory.mktemp("hostile-service")
    agents = "tests.service.hostile:HOSTILE,tests.service.agents:AGENTS"
    with ServiceProcess(folder, upstream_origin, TURNWIRE_AGENTS=agents) as service:
        yield service


@pytest.fixture
async def client(hostile_service: ServiceProcess, scenario: Scenario) -> AsyncIterator[TurnwireClient]:
    client = TurnwireClient(hostile_service.base_url, model=scenario.model)
    yield client
    await client.aclose()


@pytest.mark.parametrize(
    ("tool", "raised"),
    [("exits", "SystemExit"), ("exits_in_the_loop", "SystemExit"), ("raises_a_base", "OwnBase")],
)
async def test_a_tool_that_raises_no_exception_fails_its_turn_alone(
    client: TurnwireClient, scenario: Scenario, tool: str, raised: str
) -> None:
    await scenario.script({"tool_calls": [{"name": tool}]})
    turn = await client.run(agent="hostile")
    assert (turn["status"], turn["error"]["code"]) == ("failed", "tool_failed")
    assert raised in turn["error"]["message"]
    check_log(await client.log(turn["id"]), turn)
    assert (await client.run("still there?", agent="plain"))["status"] == "completed"


async def test_a_task_of_a_tools_own_cannot_end_the_service(client: TurnwireClient, scenario: Scenario) -> None:
    await scenario.script({"tool_calls": [{"name": "exits_in_a_task"}]})
    turn = await client.run(agent="hostile")
    (ended,) = [f for f in await client.log(turn["id"]) if f.type == "tool_call.completed"]
    assert (turn["status"], ended.data["output"]) == ("completed", "KeyboardInterrupt was raised")


async def test_a_tool_that_raises_stop_iteration_does_not_hang(
    client: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script({"tool_calls": [{"name": "stops_iterating"}]})
    turn = await client.run(agent="hostile")
    (ended,) = [f for f in await client.log(turn["id"]) if f.type == "tool_call.completed"]
    assert (turn["status"], ended.data["error"]) == ("completed", "StopIteration was raised")


@pytest.mark.parametrize(
    "agent", ["exiting-instructions", "cancelled-instructions", "exiting-guardrail", "cancelled-guardrail"]
)
async def test_code_around_an_agent_that_leaves_fails_the_turn(client: TurnwireClient, agent: str) -> None:
    turn = await client.run(agent=agent)
    assert (turn["status"], turn["error"]["code"]) == ("failed", "internal")
    assert (await client.run("still there?", agent="plain"))["status"] == "completed"


async def test_a_cancelled_output_guardrail_lets_nothing_pass(client: TurnwireClient) -> None:
    turn = await client.run(agent="cancelled-check")
    assert (turn["status"], turn["error"]["code"]) == ("failed", "internal")


@pytest.mark.parametrize(
    "arguments", ['{"q":' + "[" * 3000 + "]" * 3000 + "}", '{"q":"\\ud800"}', '{"q":' + "9" * 5000 + "}"]
)
async def test_arguments_that_cannot_be_read_are_no_end(
    client: TurnwireClient, scenario: Scenario, arguments: str
) -> None:
    await scenario.script({"tool_calls": [{"name": "lookup", "arguments": arguments}]}, {"text": "Fine."})
    turn = await client.run(agent="worker")
    assert (turn["status"], turn["output_text"]) == ("completed", "Fine.")
    assert (await scenario.last_request()).problems == []


async def test_a_tool_that_takes_no_cancellation_holds_up_neither_the_cancel_nor_the_exit(
    tmp_path: Path, upstream_origin: str, scenario: Scenario
) -> None:
    settings = {"TURNWIRE_AGENTS": "tests.service.hostile:HOSTILE", "TURNWIRE_CANCEL_WAIT_S": 20}
    with ServiceProcess(tmp_path, upstream_origin, **settings) as service:
        client = TurnwireClient(service.base_url, model=scenario.model)
        await scenario.script({"tool_calls": [{"name": "clings", "arguments": {"q": scenario.gate("held")}}]})
        turn = await client.start(agent="hostile")
        await scenario.held("held")
        cancelled = await client.cancel(turn["id"])
        assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
        await client.aclose()
        service.signal(signal.SIGTERM)
        assert await asyncio.to_thread(service.wait) == 0
