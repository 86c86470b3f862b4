"""Whatever the upstream sends: the turn ends once, and the conversation goes on with a valid history.

The bodies are those of `tests/upstream/bodies`, and of the folder that `TURNWIRE_CASES` names, if it names one.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.checks import check_log
from tests.service.client import TurnwireClient
from tests.service.process import ServiceProcess
from tests.upstream.client import Scenario
from tests.upstream.replay import BODIES, cases, is_responses_case

pytestmark = pytest.mark.anyio
FOLDERS = [BODIES, *[Path(name) for name in [os.environ.get("TURNWIRE_CASES")] if name]]
CASES = [
    pytest.param(folder, number, id=number)
    for folder in FOLDERS
    for number in cases(folder)
    if not is_responses_case(number, folder)
]


@pytest.fixture(scope="module")
def own_service(tmp_path_factory: pytest.TempPathFactory, upstream_origin: str) -> Iterator[ServiceProcess]:
    """A service of their own: it learns from a case what the upstream does not take."""
    limits = {"TURNWIRE_UPSTREAM_IDLE_S": 0.5, "TURNWIRE_MAX_STEPS": 4}
    with ServiceProcess(tmp_path_factory.mktemp("cases"), upstream_origin, **limits) as service:
        yield service
        service.check_log()


def agent_for(number: str) -> str:
    if "approval" in number or number == "57":
        return "keeper"
    return "shaped" if "json" in number or number == "36" else "worker"


@pytest.mark.parametrize(("folder", "number"), CASES)
async def test_a_turn_ends_once_and_the_conversation_goes_on(
    own_service: ServiceProcess, scenario: Scenario, folder: Path, number: str
) -> None:
    client = TurnwireClient(own_service.base_url, model=scenario.model)
    await scenario.replay(number, str(folder))
    async with client.stream("hello", agent=agent_for(number), timeout_s=15) as stream:
        frames = await stream.rest()
    if frames[-1].type == "turn.paused":
        await client.cancel(stream.turn_id)
    else:
        check_log(frames, await client.turn(stream.turn_id))
    turn = await client.run("and now?", conversation=stream.conversation_id, agent="plain")
    last = await scenario.last_request()
    await client.aclose()
    assert turn["status"] == "completed", turn["error"]
    assert last.problems == []
    assert scenario.model not in (await scenario.control.connections())["models"]
