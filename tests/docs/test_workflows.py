"""The example of docs/workflows.md is taken from it and runs: paused, killed, and finished."""

import re
from pathlib import Path

import pytest

from tests.e2e.pauses import call, calls
from tests.service.answers import answered, approvals, decisions
from tests.service.client import TurnwireClient
from tests.service.process import REPOSITORY, ServiceProcess
from tests.upstream.client import Scenario

pytestmark = pytest.mark.anyio

PAGE = (REPOSITORY / "docs/workflows.md").read_text()
LETTER = "Dear Ada, the sea is calm."


def example(folder: Path) -> dict[str, object]:
    """The example as a file, and the settings with which the page registers it."""
    (source,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    (name,) = re.findall(r"\A# (\w+\.py)\n", source)
    (agents,) = re.findall(r"TURNWIRE_AGENTS=(\S+) make run", PAGE)
    (folder / name).write_text(source)
    code = [line for line in source.splitlines() if line.strip()]
    assert len(code) <= 45
    return {"TURNWIRE_AGENTS": agents, "TURNWIRE_CONTEXT": None, "PYTHONPATH": f"{REPOSITORY}:{folder}"}


async def test_the_example_pauses_outlives_a_crash_and_gives_its_result(
    tmp_path: Path, upstream_origin: str, scenario: Scenario
) -> None:
    await scenario.script(
        calls(call("note", text="the sea")),
        calls(call("post", letter=LETTER)),
        {"text": LETTER},
        {"text": "It is short."},
    )
    with ServiceProcess(tmp_path / "data", upstream_origin, **example(tmp_path)) as service:
        client = TurnwireClient(service.base_url, model=scenario.model)
        shown = (await client.http.get("/v1/agents/letters")).json()
        assert shown["may_pause"] is True
        turn = await client.run("A letter to Ada about the sea.")
        assert [one["tool"] for one in approvals(turn)] == ["post"]
        await client.aclose()
        service.restart()
        client = TurnwireClient(service.base_url, model=scenario.model)
        turn = await answered(client, turn["id"], decisions(turn))
        assert turn["status"] == "completed", turn["error"]
        output = turn["output"]
        assert (output["notes"], output["review"]) == (["the sea"], "It is short.")
        assert (await client.http.get(output["file"])).text == LETTER
        reports = [f.data for f in await client.log(turn["id"]) if f.type == "workflow.event"]
        assert [one["name"] for one in reports] == ["desk_opened", "desk_closed"] * 2
        assert reports[2]["data"] == {"notes": ["the sea"]}
        await client.aclose()
        service.check_log()
    assert [each.problems for each in await scenario.requests()] == [[]] * 4
    assert LETTER in str((await scenario.last_request()).history)
