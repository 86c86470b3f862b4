"""Each kind of pause, answered at once and after a crash, on both wires."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest

from tests.e2e.checks import check_log
from tests.e2e.pauses import PAUSING, USER, Pausing
from tests.service.answers import answered
from tests.service.client import JsonObject, TurnwireClient
from tests.service.process import ServiceProcess
from tests.service.shapes import sent, shapes
from tests.service.sse import Frame
from tests.upstream.client import Scenario, UpstreamControl

pytestmark = pytest.mark.anyio
CASES = [pytest.param(case, id=case.name) for case in PAUSING]
WIRES = ["chat_completions", "responses"]


@dataclass(frozen=True)
class Paused:
    """A turn that waits for its first answer."""

    client: TurnwireClient
    scenario: Scenario
    turn: JsonObject


async def pause(client: TurnwireClient, scenario: Scenario, case: Pausing) -> Paused:
    await scenario.script(*case.replies)
    turn = await client.run(USER[1], agent=case.agent, **case.fields)
    assert turn["status"] == "paused", turn
    return Paused(client, scenario, turn)


@pytest.fixture(scope="module", params=WIRES)
def pausing_service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, upstream_origin: str
) -> Iterator[ServiceProcess]:
    settings = {"TURNWIRE_MODEL_API": request.param, "TURNWIRE_ALLOW_AUTO_APPROVE": "true"}
    with ServiceProcess(tmp_path_factory.mktemp("pausing"), upstream_origin, **settings) as service:
        yield service
        service.check_log()


@pytest.fixture(scope="module")
async def all_paused(pausing_service: ServiceProcess, upstream_origin: str) -> AsyncIterator[dict[str, Paused]]:
    """A turn for each case, paused; then the service was killed and started again."""
    control = UpstreamControl(upstream_origin)
    paused = {}
    for case in PAUSING:
        scenario = control.scenario()
        client = TurnwireClient(pausing_service.base_url, model=scenario.model)
        paused[case.name] = await pause(client, scenario, case)
        await client.aclose()
    pausing_service.restart()
    yield {
        name: Paused(TurnwireClient(pausing_service.base_url, model=one.scenario.model), one.scenario, one.turn)
        for name, one in paused.items()
    }
    await control.aclose()


@pytest.mark.parametrize("case", CASES)
async def test_a_pause_is_answered_after_a_crash(all_paused: dict[str, Paused], case: Pausing) -> None:
    await it_goes_on_to_its_end(all_paused[case.name], case)


@pytest.mark.parametrize("case", CASES)
async def test_a_pause_is_answered(pausing_service: ServiceProcess, scenario: Scenario, case: Pausing) -> None:
    client = TurnwireClient(pausing_service.base_url, model=scenario.model)
    await it_goes_on_to_its_end(await pause(client, scenario, case), case)


async def it_goes_on_to_its_end(paused: Paused, case: Pausing) -> None:
    client, turn = paused.client, paused.turn
    reasons = []
    for given in case.answers:
        assert turn["status"] == "paused", turn
        reasons.append(turn["pause"]["reason"])
        turn = await answered(client, turn["id"], given(turn))
    assert turn["status"] == "completed", turn
    assert reasons == case.reasons
    frames = await client.log(turn["id"])
    check_log(frames, turn)
    check_steps(frames)
    check_approvals(frames)
    ran = [f.data["data"]["tool"] for f in frames if f.type == "workflow.event"]
    assert sorted(ran) == sorted(case.ran)
    # Outputs stand in the order in which their tools ended.
    assert sorted(shapes(await client.items(turn["conversation_id"]))) == sorted(case.kept)
    requests = await paused.scenario.requests()
    assert len(requests) == len(case.replies)
    assert [r.problems for r in requests] == [[]] * len(requests)
    assert sorted(sent(requests[-1].history)) == sorted(case.kept[:-1])
    assert turn["usage"]["requests"] == len(requests)
    assert turn["usage"]["total_tokens"] == 18 * len(requests)
    assert turn["output_text"] == "All done."
    await client.aclose()


def check_steps(frames: list[Frame]) -> None:
    """Steps are whole, numbered through over all runs, end after their last tool, and say what they cost."""
    began = [f.data["step"] for f in frames if f.type == "step.started" and "parent_call_id" not in f.data]
    assert began == list(range(1, len(began) + 1))
    for parent in {f.data.get("parent_call_id") for f in frames}:
        of_run = [f for f in frames if f.data.get("parent_call_id") == parent]
        open_calls: set[str] = set()
        for frame in of_run:
            match frame.type:
                case "tool_call.requested":
                    open_calls.add(frame.data["call_id"])
                case "tool_call.completed":
                    open_calls.remove(frame.data["call_id"])
                case "step.completed":
                    assert not open_calls
                    assert frame.data["usage"]["total_tokens"] == 18
        started = [f.data["agent"] for f in of_run if f.type == "agent.started"]
        assert len(started) == len(set(started)), started


def check_approvals(frames: list[Frame]) -> None:
    asked = [(f.data["approval_id"], f.data["call_id"]) for f in frames if f.type == "approval.requested"]
    decided = [(f.data["approval_id"], f.data["call_id"]) for f in frames if f.type == "approval.decided"]
    assert sorted(asked) == sorted(decided)
    parents = {
        f.data["call_id"]: f.data.get("parent_call_id") for f in frames if f.type == "tool_call.requested"
    }
    for frame in frames:
        if frame.type in ("approval.requested", "approval.decided", "tool_call.completed"):
            assert frame.data.get("parent_call_id") == parents[frame.data["call_id"]]
