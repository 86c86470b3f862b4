"""The desk over HTTP: the real service, its sandboxes, and an upstream that the brain plays."""

import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.builtin_agents.healthcare_support import Records
from app.domain.ids import new_turn_id
from tests.bounds import PROCESS_S, until
from tests.builtin_agents.brains import HELD, INSISTING, SLEEPING, STAGES
from tests.sandbox.processes import FOR_A_WHILE, sleepers
from tests.service.client import TurnwireClient
from tests.service.collector import Collector, collecting
from tests.service.process import REPOSITORY, ServiceProcess
from tests.service.sse import Frame
from tests.upstream.client import UpstreamControl
from tests.upstream.process import upstream_process

pytestmark = pytest.mark.anyio

AGENT = "healthcare_support"
KNEE = "messy_ambiguous_knee_case"
SCENARIOS = Records.load().scenarios
DOCUMENTS = ["human_review_checklist.md", "policy_findings.md"]
PLAIN = {"TURNWIRE_AGENTS": None, "TURNWIRE_CONTEXT": None}

JsonObject = dict[str, Any]


@pytest.fixture(scope="module")
def brain_origin() -> Iterator[str]:
    with upstream_process(["--brain", "*=tests.builtin_agents.brains:told"]) as origin:
        yield origin


@pytest.fixture(scope="module", params=["chat_completions", "responses"])
def desk_service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, brain_origin: str
) -> Iterator[ServiceProcess]:
    folder = tmp_path_factory.mktemp("desk")
    settings = {**PLAIN, "TURNWIRE_MODEL_API": request.param, "TURNWIRE_ALLOW_AUTO_APPROVE": "true"}
    with ServiceProcess(folder, brain_origin, **settings) as service:
        yield service
        service.check_log()


@pytest.fixture
async def desk(desk_service: ServiceProcess) -> AsyncIterator[TurnwireClient]:
    async with _client(desk_service) as client:
        yield client


@asynccontextmanager
async def _client(service: ServiceProcess) -> AsyncIterator[TurnwireClient]:
    client = TurnwireClient(service.base_url)
    try:
        yield client
    finally:
        await client.aclose()


async def _decide(
    desk: TurnwireClient, turn: JsonObject, decision: str, reason: str | None = None
) -> JsonObject:
    """Answer all approvals that the turn waits for; the turn as JSON once it has paused or ended."""
    decisions = [
        {"approval_id": approval["approval_id"], "decision": decision, "reason": reason}
        for approval in turn["pause"]["approvals"]
    ]
    response = await desk.http.post(
        f"/v1/turns/{turn['id']}/decisions",
        json={"decisions": decisions},
        headers={"accept": "application/json"},
    )
    assert response.status_code == 200, response.text
    answered: JsonObject = response.json()
    return answered


async def _artifact(desk: TurnwireClient, turn: JsonObject, name: str) -> bytes:
    found = next(artifact for artifact in turn["output"]["artifacts"] if artifact["name"] == name)
    response = await desk.http.get(found["url"])
    assert response.status_code == 200, response.text
    return response.content


def _workspaces(service: ServiceProcess) -> list[Path]:
    folder = service.folder / "workspaces"
    return list(folder.iterdir()) if folder.is_dir() else []


def _workflow_events(log: list[Frame]) -> list[str]:
    return [frame.data["name"] for frame in log if frame.type == "workflow.event"]


async def test_the_desk_is_described_with_inputs_to_try(desk: TurnwireClient) -> None:
    told = (await desk.http.get(f"/v1/agents/{AGENT}")).json()
    assert told["may_pause"] is True
    assert set(SCENARIOS) <= set(told["examples"])
    assert all(scenario.description in told["description"] for scenario in SCENARIOS.values())


@pytest.mark.parametrize("scenario_id", SCENARIOS)
async def test_each_scenario_ends_with_its_resolution_and_its_files(
    desk: TurnwireClient, desk_service: ServiceProcess, scenario_id: str
) -> None:
    expected = SCENARIOS[scenario_id].expected
    turn = await desk.run(scenario_id, agent=AGENT)
    assert (turn["status"] == "paused") == expected.route_to_human, turn["error"]
    if turn["status"] == "paused":
        turn = await _decide(desk, turn, "approve")
    assert turn["status"] == "completed", turn["error"]
    resolution = turn["output"]["resolution"]
    assert resolution["intent"] == expected.intent
    assert (resolution["handoff_id"] is not None) == expected.route_to_human
    assert [artifact["name"] for artifact in turn["output"]["artifacts"]] == DOCUMENTS
    assert resolution["policy_summary"].split(".")[0].encode() in await _artifact(
        desk, turn, "policy_findings.md"
    )
    await until(lambda: _workspaces(desk_service) == [])


async def test_nested_agents_and_workflow_events_are_on_the_stream(desk: TurnwireClient) -> None:
    async with desk.stream("referral_status_check", agent=AGENT) as stream:
        frames = await stream.rest()
    assert _workflow_events(frames) == [
        "scenario_loaded",
        "memory_ready",
        "sandbox_ready",
        "trace_ready",
        "artifacts_ready",
        "workflow_complete",
        "sandbox_stopped",
    ]
    nested = {f.data["agent"] for f in frames if f.type == "agent.started" and "parent_call_id" in f.data}
    assert nested == {"HealthcareBenefitsAgent", "HealthcarePolicyAgent"}
    commands = [f for f in frames if f.type == "tool_call.requested" and f.data["tool"] == "exec_command"]
    assert len(commands) == 4


async def test_a_second_case_remembers_the_first_and_another_conversation_does_not(
    desk: TurnwireClient,
) -> None:
    first = await desk.run("blue_cross_pt_benefits", agent=AGENT)
    asked = "And what was the copay of that plan again?"
    second = await desk.run(asked, conversation=first["conversation_id"], agent=AGENT)
    assert "Ingrid Oyelaran" in second["output"]["resolution"]["patient"]
    stranger = await desk.run(asked, agent=AGENT)
    assert stranger["output"]["resolution"]["patient"] == "nobody on file"


async def test_a_reject_reason_reaches_the_model(desk: TurnwireClient) -> None:
    turn = await desk.run(KNEE, agent=AGENT)
    turn = await _decide(desk, turn, "reject", "The clinic calls itself.")
    assert turn["status"] == "completed"
    assert "The clinic calls itself." in turn["output"]["resolution"]["internal_summary"]
    assert turn["output"]["resolution"]["route_to_human"] is False


async def test_a_sixth_round_of_approvals_ends_the_turn(
    desk: TurnwireClient, desk_service: ServiceProcess
) -> None:
    turn = await desk.run(KNEE, agent=AGENT, model=INSISTING)
    for _ in range(5):
        assert turn["status"] == "paused"
        turn = await _decide(desk, turn, "reject")
    assert turn["status"] == "failed"
    assert turn["error"]["code"] == "approval_rounds_exceeded"
    await until(lambda: _workspaces(desk_service) == [])


def _decided_by_curl(service: ServiceProcess, turn: JsonObject) -> JsonObject:
    """Approve by the command that a person would type."""
    decisions = [{"approval_id": a["approval_id"], "decision": "approve"} for a in turn["pause"]["approvals"]]
    command = ["curl", "--silent", "--show-error", "--fail", "-H", "content-type: application/json"]
    command += ["-H", "accept: application/json", "-d", json.dumps({"decisions": decisions})]
    done = subprocess.run(
        [*command, f"{service.base_url}/v1/turns/{turn['id']}/decisions"],
        capture_output=True,
        timeout=PROCESS_S,
        check=True,
    )
    answered: JsonObject = json.loads(done.stdout)
    return answered


async def test_a_killed_service_goes_on_with_the_knee_case_once_it_is_approved(
    tmp_path: Path, brain_origin: str
) -> None:
    with (
        collecting() as collector,
        ServiceProcess(tmp_path, brain_origin, **PLAIN, **traced(collector)) as service,
    ):
        async with _client(service) as desk:
            paused = await desk.run(KNEE, agent=AGENT)
        assert paused["status"] == "paused"
        collector.wait(f"turn {AGENT}")
        service.kill()
        (kept,) = _workspaces(service)
        assert (kept.name, any(kept.rglob("policy_findings.md"))) == (paused["id"], True)
        (service.folder / "workspaces" / new_turn_id() / "of-a-crash").mkdir(parents=True)
        service.start()
        service.wait_ready()
        assert _workspaces(service) == [kept]
        turn = _decided_by_curl(service, paused)
        async with _client(service) as desk:
            assert turn["status"] == "completed", turn["error"]
            assert turn["output"]["resolution"]["handoff_id"].startswith("HUMAN-")
            assert b"HR.1" in await _artifact(desk, turn, "policy_findings.md")
            started = [f for f in await desk.log(turn["id"]) if f.type == "workflow.event"]
        traces = {f.data["data"]["trace_id"] for f in started if f.data["name"] == "trace_ready"}
        assert traces == {turn["output"]["trace_id"]}
        await until(lambda: _workspaces(service) == [])
        collector.wait("invoke_agent HealthcareMemoryAgent", "execute_tool route_to_human_queue")
        assert service.terminate() == 0
    _check_traces(collector, turn)


def traced(collector: Collector) -> dict[str, str]:
    return {"TURNWIRE_TRACING": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": collector.address}


def _check_traces(collector: Collector, turn: JsonObject) -> None:
    """One trace over the main run, its resume after the restart and the recap; the scenario is its group."""
    spans = collector.spans()
    assert {f"trace_{span.trace_id}" for span in spans} == {turn["output"]["trace_id"]}
    assert {span.attributes["turnwire.group.id"] for span in spans} == {KNEE}
    runs = {s.span_id: s.attributes["turnwire.run"] for s in spans if s.name == f"turn {AGENT}"}
    assert sorted(runs.values()) == [1, 2]
    assert {"invoke_agent HealthcareBenefitsAgent", "execute_tool exec_command"} <= {s.name for s in spans}
    assert turn["output"]["trace_url"] is None


@pytest.mark.parametrize("stage", [*STAGES, "memory"])
async def test_a_cancel_at_each_stage_leaves_no_workspace(
    desk: TurnwireClient, desk_service: ServiceProcess, brain_origin: str, stage: str
) -> None:
    upstream = UpstreamControl(brain_origin)
    gate = f"{HELD}{stage}-{new_turn_id()}"
    turn = await desk.start("referral_status_check", agent=AGENT, model=gate)
    await upstream.held(gate)
    response = await desk.cancel(turn["id"])
    await upstream.gone(gate)
    await upstream.aclose()
    assert response.json()["status"] == "cancelled"
    assert _workflow_events(await desk.log(turn["id"]))[-1] == "sandbox_stopped"
    await until(lambda: _workspaces(desk_service) == [])


@pytest.mark.parametrize("ending", ["cancel", "deletion"])
async def test_a_turn_that_ends_while_it_waits_leaves_no_workspace(
    desk: TurnwireClient, desk_service: ServiceProcess, ending: str
) -> None:
    turn = await desk.run(KNEE, agent=AGENT)
    assert turn["status"] == "paused"
    assert turn["id"] in [folder.name for folder in _workspaces(desk_service)]
    if ending == "cancel":
        assert (await desk.cancel(turn["id"])).json()["status"] == "cancelled"
    else:
        assert (await desk.http.delete(f"/v1/conversations/{turn['conversation_id']}")).status_code == 204
    await until(lambda: _workspaces(desk_service) == [])


async def test_a_cancel_ends_the_command_that_runs_in_the_sandbox(
    desk: TurnwireClient, desk_service: ServiceProcess
) -> None:
    turn = await desk.start("referral_status_check", agent=AGENT, model=f"{SLEEPING}{FOR_A_WHILE}")
    await until(sleepers)
    response = await desk.cancel(turn["id"])
    assert response.json()["status"] == "cancelled"
    await until(lambda: not sleepers() and _workspaces(desk_service) == [])


async def test_what_changes_in_the_files_of_the_desk_changes_answer_and_artifact(
    tmp_path: Path, brain_origin: str
) -> None:
    root = tmp_path / "code"
    shutil.copytree(REPOSITORY / "app", root / "app", ignore=shutil.ignore_patterns("__pycache__"))
    data = root / "app" / "builtin_agents" / "healthcare_support" / "data"
    _replace(data / "insurance.json", '"copay_specialist": 45', '"copay_specialist": 417')
    _replace(data / "policies" / "eligibility_verification.md", "it is no promise", "it is no solemn oath")
    service = ServiceProcess(tmp_path / "data", brain_origin, PYTHONPATH=root, **PLAIN)
    service.root = root
    with service:
        async with _client(service) as desk:
            turn = await desk.run("eligibility_verification_basic", agent=AGENT)
            assert "specialist $417" in turn["output"]["resolution"]["patient_response"]
            assert "no solemn oath" in turn["output"]["resolution"]["policy_summary"]
            assert b"no solemn oath" in await _artifact(desk, turn, "policy_findings.md")


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
