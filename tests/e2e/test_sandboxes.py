"""Agents that work in sandboxes, through the service; and where there are none."""

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.bounds import until
from tests.e2e.pauses import call, calls
from tests.sandbox.processes import FOR_A_WHILE, sleepers
from tests.service.client import JsonObject, TurnwireClient
from tests.service.process import API_KEY, ServiceProcess
from tests.service.sse import Frame
from tests.upstream.client import Scenario

pytestmark = pytest.mark.anyio

SANDBOXED = {"TURNWIRE_AGENTS": "tests.service.sandboxed:AGENTS", "TURNWIRE_TOOL_TIMEOUT_S": 2}
LAST = {"text": "All done."}
WORKING = shutil.which("bwrap")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, upstream_origin: str) -> Iterator[ServiceProcess]:
    folder = tmp_path_factory.mktemp("sandboxed")
    with ServiceProcess(folder, upstream_origin, **SANDBOXED) as service:
        yield service
        service.check_log()


def run(command: str, **more: object) -> JsonObject:
    return call("exec_command", cmd=command, **more)


async def completed(client: TurnwireClient, scenario: Scenario, *made: JsonObject) -> list[Frame]:
    """The ends of the calls that the model makes at once."""
    await scenario.script(calls(*made), LAST)
    async with client.stream("Look around.", agent="explorer") as stream:
        frames = await stream.rest()
    assert frames[-1].type == "turn.completed", frames[-1].data
    return frames


def outputs(frames: list[Frame]) -> list[str]:
    return [f.data["output"] for f in frames if f.type == "tool_call.completed"]


async def test_a_models_commands_run_confined(
    client: TurnwireClient, scenario: Scenario, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    look = run(f"pwd; env; cat {secret} /proc/1/environ; ls /proc | grep -c '^[0-9]'; echo kept > here")
    (said,) = outputs(await completed(client, scenario, look))
    assert "/workspace" in said
    assert "of the host" not in said
    assert API_KEY not in said


async def test_files_last_from_step_to_step_and_go_with_the_turn(
    client: TurnwireClient, scenario: Scenario, service: ServiceProcess
) -> None:
    handover = calls(call("transfer_to_explorer"))
    await scenario.script(handover, calls(run("echo kept > here")), calls(run("cat here")), LAST)
    async with client.stream("Look around.", agent="foreman") as stream:
        frames = await stream.rest()
    assert "kept" in outputs(frames)[1]
    await until(lambda: not list((service.folder / "workspaces").iterdir()))


async def test_tools_that_a_sandbox_brings_are_the_services(client: TurnwireClient, scenario: Scenario) -> None:
    frames = await completed(client, scenario, call("tides", place="Oban"), call("forever"))
    ended = {f.data["tool"]: f.data for f in frames if f.type == "tool_call.completed"}
    assert ended["tides"]["status"] == "success"
    assert ended["forever"]["status"] == "error"
    assert "2 seconds" in ended["forever"]["error"]
    (reported,) = [f.data for f in frames if f.type == "workflow.event"]
    assert reported["data"] == {"place": "Oban"}
    told = [m["content"] for m in (await scenario.last_request()).history if m["role"] == "tool"]
    assert '{"high": null, "place": "Oban"}' in told


async def test_a_cancel_ends_the_command_and_removes_its_files(
    client: TurnwireClient, scenario: Scenario, service: ServiceProcess
) -> None:
    await scenario.script(calls(run(f"sleep {FOR_A_WHILE}", yield_time_ms=60000)))
    turn = await client.start("Look around.", agent="explorer")
    await until(sleepers)
    assert (await client.cancel(turn["id"])).json()["status"] == "cancelled"
    await until(lambda: not sleepers() and not list((service.folder / "workspaces").iterdir()))


@pytest.fixture
async def bare(tmp_path: Path, upstream_origin: str, scenario: Scenario) -> AsyncIterator[TurnwireClient]:
    """A service without sandboxes."""
    with ServiceProcess(tmp_path, upstream_origin, **SANDBOXED, TURNWIRE_SANDBOX="off") as service:
        client = TurnwireClient(service.base_url, model=scenario.model)
        yield client
        await client.aclose()
        service.check_log()


async def test_where_there_are_no_sandboxes_agents_that_need_one_are_refused_before_they_begin(
    bare: TurnwireClient, scenario: Scenario
) -> None:
    for agent in ("explorer", "foreman", "healthcare_support"):
        refused = await bare.post("Look around.", agent=agent, accept="text/event-stream")
        assert refused.status_code == 503
        problem = refused.json()
        assert problem["code"] == "sandbox_unavailable"
        assert "TURNWIRE_SANDBOX=off" in problem["detail"]
    assert (await bare.http.get("/v1/turns")).json()["data"] == []
    assert await scenario.requests() == []
    assert (await bare.run("hello", agent="clerk"))["status"] == "completed"


async def test_a_sandbox_that_stops_working_ends_the_turn_and_says_why(
    tmp_path: Path, upstream_origin: str, scenario: Scenario
) -> None:
    broken, programs = tmp_path / "broken", tmp_path / "bin"
    programs.mkdir()
    bwrap = programs / "bwrap"
    complaint = "bwrap: No permissions to create new namespace"
    bwrap.write_text(f"#!/bin/sh\n[ -e {broken} ] && echo '{complaint}' >&2 && exit 1\nexec {WORKING} \"$@\"\n")
    bwrap.chmod(0o755)
    settings = SANDBOXED | {"PATH": f"{programs}:{os.environ['PATH']}"}
    with ServiceProcess(tmp_path / "data", upstream_origin, **settings) as service:
        client = TurnwireClient(service.base_url, model=scenario.model)
        broken.touch()
        turn = await client.run("referral_status_check", agent="healthcare_support")
        reports = [f.data["name"] for f in await client.log(turn["id"]) if f.type == "workflow.event"]
        await client.aclose()
        await until(lambda: not list((service.folder / "workspaces").iterdir()))
    assert (turn["status"], turn["error"]["code"]) == ("failed", "tool_failed")
    assert complaint in turn["error"]["message"]
    assert reports == ["scenario_loaded", "memory_ready", "sandbox_stopped"]
