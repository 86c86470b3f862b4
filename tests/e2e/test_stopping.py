"""Starting and stopping: what a signal does to those who listen, and what a wrong start says."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

from tests.bounds import BOUND_S, PROCESS_S
from tests.service.client import JsonObject, TurnwireClient
from tests.service.process import REPOSITORY, ServiceProcess
from tests.service.shapes import shapes
from tests.upstream.client import Scenario

pytestmark = pytest.mark.anyio
Start = Callable[..., tuple[ServiceProcess, TurnwireClient]]


@pytest.fixture
async def start(tmp_path: Path, upstream_origin: str, scenario: Scenario) -> AsyncIterator[Start]:
    """Start a service of this test's own on the test's folder, with these settings, and a client of it."""
    async with AsyncExitStack() as stack:

        def started(**settings: object) -> tuple[ServiceProcess, TurnwireClient]:
            service = stack.enter_context(ServiceProcess(tmp_path / "data", upstream_origin, **settings))
            client = TurnwireClient(service.base_url, model=scenario.model)
            stack.push_async_callback(client.aclose)
            return service, client

        yield started


async def held_turn(client: TurnwireClient, scenario: Scenario, **fields: str) -> JsonObject:
    await scenario.script({"text": "one two three", "hold": {"text:1": scenario.gate("text")}})
    turn = await client.start("hello", **fields)
    await scenario.held("text")
    return turn


async def until_draining(client: TurnwireClient) -> None:
    async with asyncio.timeout(BOUND_S):
        while (await client.http.get("/readyz")).status_code != 503:
            pass


async def exit_code(service: ServiceProcess) -> int:
    return await asyncio.to_thread(service.wait)


async def test_during_the_grace_turns_go_on_and_new_ones_are_refused(start: Start, scenario: Scenario) -> None:
    service, client = start(TURNWIRE_SHUTDOWN_GRACE_S=20)
    turn = await held_turn(client, scenario)
    async with client.events(turn["id"]) as stream:
        await stream.until_text("one ")
        service.signal(signal.SIGTERM)
        await until_draining(client)
        refused = await client.post("second")
        assert (refused.status_code, refused.json()["code"]) == (503, "shutting_down")
        assert refused.headers["retry-after"]
        assert (await client.turn(turn["id"]))["status"] == "running"
        async with client.events(turn["id"]) as late:
            await late.until_text("one ")
            await scenario.release("text")
            await late.rest()
        await stream.rest()
    assert stream.types[-1] == late.types[-1] == "turn.completed"
    assert await exit_code(service) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_after_the_grace_every_stream_gets_its_terminal_frame(
    start: Start, scenario: Scenario, number: signal.Signals
) -> None:
    service, client = start(TURNWIRE_SHUTDOWN_GRACE_S=0.3)
    turn = await held_turn(client, scenario)
    async with client.events(turn["id"]) as one, client.events(turn["id"]) as two:
        await one.until_text("one ")
        service.signal(number)
        await one.rest()
        await two.rest()
    ended = one.frames[-1].data["turn"]
    assert (ended["status"], ended["error"]["code"]) == ("failed", "shutting_down")
    assert [f.raw for f in one.frames] == [f.raw for f in two.frames]
    assert await exit_code(service) == 0
    await scenario.closed()
    _, client = start()
    assert shapes(await client.items(turn["conversation_id"])) == [("user", "hello"), ("assistant", "one ")]


async def test_an_idle_service_stops_at_once(start: Start) -> None:
    service, client = start()
    await client.run("hello")
    began = time.monotonic()
    service.signal(signal.SIGTERM)
    assert await exit_code(service) == 0
    assert time.monotonic() - began < 3
    service.check_log()


async def test_a_second_signal_exits_at_once(start: Start, scenario: Scenario) -> None:
    service, client = start(TURNWIRE_SHUTDOWN_GRACE_S=60)
    await held_turn(client, scenario)
    service.signal(signal.SIGTERM)
    await until_draining(client)
    began = time.monotonic()
    service.signal(signal.SIGTERM)
    await exit_code(service)
    assert time.monotonic() - began < 2


async def test_a_tool_that_cannot_be_stopped_does_not_hold_the_exit(start: Start, scenario: Scenario) -> None:
    service, client = start(TURNWIRE_SHUTDOWN_GRACE_S=0.3)
    call = {"name": "slow_sync", "arguments": {"q": scenario.gate("tool")}}
    await scenario.script({"tool_calls": [call]}, {"tool_calls": [call]})
    abandoned = await client.start("hello", agent="worker")
    running = await client.start("hello", agent="worker")
    await scenario.held("tool")
    await client.cancel(abandoned["id"])
    began = time.monotonic()
    service.signal(signal.SIGTERM)
    assert await exit_code(service) == 0
    assert time.monotonic() - began < 5
    _, client = start()
    assert (await client.turn(running["id"]))["status"] == "failed"


async def test_a_conversations_stream_is_cut_when_the_service_stops(start: Start) -> None:
    service, client = start()
    turn = await client.run("hello")
    async with client.follow(turn["conversation_id"]) as stream:
        service.signal(signal.SIGTERM)
        with pytest.raises(httpx.TransportError):
            await stream.rest()
    assert await exit_code(service) == 0


async def test_a_queued_turn_starts_after_a_restart(start: Start, scenario: Scenario) -> None:
    service, client = start(TURNWIRE_SHUTDOWN_GRACE_S=0.3)
    turn = await held_turn(client, scenario)
    queued = await client.start("second", conversation=turn["conversation_id"], on_conflict="enqueue")
    assert service.terminate() == 0
    _, client = start()
    ended = await client.ended(queued["id"])
    assert ended["status"] == "completed"
    assert shapes(await client.items(turn["conversation_id"]))[-2:] == [
        ("user", "second"),
        ("assistant", "All good."),
    ]


async def test_one_process_serves_a_folder(start: Start, tmp_path: Path, upstream_origin: str) -> None:
    _, client = start(TURNWIRE_SHUTDOWN_GRACE_S=0.2)
    second = ServiceProcess(tmp_path / "data", upstream_origin, TURNWIRE_SHUTDOWN_GRACE_S=0.2)
    with pytest.raises(AssertionError, match="another process"):
        second.start()
    second.kill()
    assert (await client.run("hello"))["status"] == "completed"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TURNWIRE_COLOUR", "blue"),
        ("TURNWIRE_MAX_STEPS", "none"),
        ("TURNWIRE_CANCEL_MODE", "gently"),
        ("TURNWIRE_HOST", "0.0.0.0"),
        ("TURNWIRE_AGENTS", "tests.service.agents:NOTHING"),
        ("TURNWIRE_CONTEXT", "tests.service.nothing:made"),
    ],
)
def test_a_wrong_setting_is_an_error_at_start_that_names_it(
    tmp_path: Path, upstream_origin: str, name: str, value: str
) -> None:
    service = ServiceProcess(tmp_path / "data", upstream_origin, **{name: value})
    ended = subprocess.run(
        [sys.executable, "-m", "app"],
        cwd=REPOSITORY,
        env=service.environment,
        capture_output=True,
        text=True,
        timeout=PROCESS_S,
    )
    assert ended.returncode not in (0, -signal.SIGKILL)
    assert name in ended.stderr
    assert "Traceback" not in ended.stderr


async def test_what_kubernetes_injects_is_ignored(start: Start) -> None:
    _, client = start(TURNWIRE_SERVICE_HOST="10.0.0.1", TURNWIRE_PORT_8000_TCP="tcp://10.0.0.1:8000")
    assert (await client.http.get("/healthz")).status_code == 200
