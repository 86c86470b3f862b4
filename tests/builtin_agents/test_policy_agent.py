"""The policy agent finishes through its finalize tool alone, and only with its work done."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from agents import RunConfig, Runner
from agents.sandbox import ExecResult, SandboxRunConfig, WorkspaceReadNotFoundError
from agents.sandbox.session import BaseSandboxSession
from agents.testing import ScriptedModel, assistant_message, function_call, scripted_sandbox_session

from app.builtin_agents.healthcare_support import Records
from app.builtin_agents.healthcare_support.case import Case
from app.builtin_agents.healthcare_support.desk import Desk, DeskState
from app.builtin_agents.healthcare_support.policy_agent import MAX_STEPS, SKILL, note, policy_agent
from app.builtin_agents.healthcare_support.workspace import CHECKLIST, FINDINGS
from app.domain.json_types import JsonObject
from app.sandbox import Sandboxes
from demo.healthcare_brain import brain
from tests.builtin_agents.rooms import Room
from tests.upstream.brain import Seen

pytestmark = pytest.mark.anyio

PACKET: JsonObject = {
    "summary": "Nothing applies.",
    "rules": [],
    "missing_information": [],
    "review_queue": None,
    "review_priority": None,
    "files": [],
}


def _finalize(call_id: str) -> Any:
    return function_call("finalize_policy_packet", {"packet": PACKET}, call_id=call_id)


NOT_THERE = {"method": "read", "error": WorkspaceReadNotFoundError(path=Path("nothing"))}


def _written(text: bytes) -> dict[str, Any]:
    return {"method": "read", "result": io.BytesIO(text)}


async def _run(model: ScriptedModel, session: BaseSandboxSession) -> tuple[Any, Desk]:
    records = Records.load()
    desk = Desk(records, Case(), session)
    config = RunConfig(model=model, tracing_disabled=True, sandbox=SandboxRunConfig(session=session))
    result = await Runner.run(policy_agent(records), "A case.", context=desk, run_config=config)
    return result.final_output, desk


async def test_finalize_tells_what_is_missing_and_works_once_all_is_there() -> None:
    session = scripted_sandbox_session(
        [
            *[NOT_THERE] * 2,  # the first finalize finds no document
            NOT_THERE,  # nor is the skill in the workspace
            {"method": "mkdir", "result": None},
            {"method": "write", "result": None},
            {"method": "exec", "result": ExecResult(stdout=b"policies/a.md:1:x", stderr=b"", exit_code=0)},
            _written(b"findings"),
            _written(b"checklist"),
        ]
    )
    model = ScriptedModel(
        [
            [_finalize("call_1")],
            [function_call("load_skill", {"skill_name": SKILL}, call_id="call_2")],
            [function_call("exec_command", {"cmd": "grep -ri copay policies"}, call_id="call_3")],
            [_finalize("call_4")],
        ]
    )
    output, desk = await _run(model, session)
    assert json.loads(output) == PACKET
    assert desk.state.packet is not None
    refused = json.loads(model.calls[1].input[-1]["output"])
    assert len(refused["missing"]) == 4
    session.assert_complete()
    model.assert_complete()


async def test_the_skill_reaches_the_model_from_the_workspace(room: Room) -> None:
    await room.resolve("referral_status_check")
    seen = [seen for seen in room.models.seen if "finalize_policy_packet" in seen.tools][-1]
    assert json.loads(seen.new_outputs[0])["path"] == f".agents/{SKILL}"
    assert "# Building the packet" in seen.new_outputs[1]
    assert f"- {SKILL}: Builds the policy packet" in seen.instructions


async def test_an_empty_document_is_a_missing_one() -> None:
    session = scripted_sandbox_session([_written(b" \n"), _written(b"checklist")])
    model = ScriptedModel([[_finalize("call_1")], [assistant_message("I give up.")]])
    _, desk = await _run(model, session)
    assert f"output/{FINDINGS}" in model.calls[1].input[-1]["output"]
    assert f"output/{CHECKLIST}" not in model.calls[1].input[-1]["output"]
    assert desk.state.packet is None


def _noted(tool: str, arguments: JsonObject, result: object) -> DeskState:
    state = DeskState()
    note(state, tool, arguments, result)
    return state


def test_a_search_counts_only_if_it_searched_the_policies_and_found_something() -> None:
    found = "Wall time: 0.1 seconds\nProcess exited with code 0\nOutput:\na"
    assert _noted("exec_command", {"cmd": "rg copay policies/"}, found).searches
    assert _noted("exec_command", {"cmd": "grep copay *", "workdir": "policies"}, found).searches
    assert not _noted("exec_command", {"cmd": "rg copay case/"}, found).searches
    assert not _noted("exec_command", {"cmd": "cat policies/appeals.md"}, found).searches
    assert not _noted("exec_command", {"cmd": "rg copay policies/"}, found.replace("code 0", "code 1")).searches


def test_a_skill_that_does_not_exist_is_not_loaded() -> None:
    assert not _noted("load_skill", {}, '{"error": "There is no skill x"}').skills_loaded
    assert not _noted("load_skill", {}, "An error occurred while running the tool").skills_loaded
    assert _noted("load_skill", {}, '{"status": "loaded", "skill_name": "s"}').skills_loaded == ["s"]


def _policies_play(*replies: JsonObject) -> Any:
    """The brain, but the policy agent's steps are these, the last one for ever."""
    steps = list(replies)

    def play(seen: Seen) -> JsonObject:
        if "finalize_policy_packet" in seen.tools:
            return steps.pop(0) if len(steps) > 1 else steps[0]
        return brain(seen)

    return play


def _shell(command: str) -> JsonObject:
    return {"tool_calls": [{"name": "exec_command", "arguments": {"cmd": command}}]}


async def test_mere_text_does_not_finish_and_documents_are_made_from_the_resolution(
    sandboxes: Sandboxes,
) -> None:
    room = Room(sandboxes, play=_policies_play({"text": "All done."}))
    ended = await room.resolve("eligibility_verification_basic")
    assert "finalize_policy_packet" in ended.payload["resolution"]["policy_summary"]
    assert sorted(room.artifacts.files) == [CHECKLIST, FINDINGS]
    assert b"specialist $45" in room.artifacts.files[FINDINGS]


async def test_only_regular_top_level_files_become_artifacts_and_keep_their_bytes(sandboxes: Sandboxes) -> None:
    command = (
        "cd output; printf 'a\\000b\\r\\n' > notes.bin; "
        "mkdir deep; echo x > deep/x.md; ln -s /etc/hostname link.md"
    )
    room = Room(sandboxes, play=_policies_play(_shell(command), {"text": "All done."}))
    await room.resolve("referral_status_check")
    assert list(room.artifacts.files) == [CHECKLIST, "notes.bin", FINDINGS]
    assert room.artifacts.files["notes.bin"] == b"a\0b\r\n"


async def test_the_workspace_starts_with_the_case_the_policies_and_an_empty_output(
    sandboxes: Sandboxes,
) -> None:
    room = Room(sandboxes, play=_policies_play(_shell("find . -type f | sort; ls -d output"), {"text": "."}))
    await room.resolve("referral_status_check")
    seen = next(s for s in room.models.seen if "finalize_policy_packet" in s.tools and s.new_outputs)
    listed = seen.new_outputs[0].partition("Output:\n")[2].split()
    policies = [f"./policies/{name}" for name in Records.load().policies]
    assert listed == [*sorted(["./case/scenario.json", "./case/transcript.txt", *policies]), "output"]


async def test_the_policy_agent_may_take_twenty_steps(sandboxes: Sandboxes) -> None:
    room = Room(sandboxes, play=_policies_play(_shell("true")))
    ended = await room.resolve("referral_status_check")
    steps = [seen for seen in room.models.seen if "finalize_policy_packet" in seen.tools]
    assert len(steps) == MAX_STEPS == 20
    assert "Max turns" in ended.payload["resolution"]["policy_summary"]


async def test_case_and_policies_can_only_be_read(sandboxes: Sandboxes) -> None:
    command = "rm -f policies/appeals.md; echo x >> case/transcript.txt; echo x > policies/new.md; ls policies"
    room = Room(sandboxes, play=_policies_play(_shell(command), {"text": "."}))
    await room.resolve("referral_status_check")
    seen = next(s for s in room.models.seen if "finalize_policy_packet" in s.tools and s.new_outputs)
    assert "appeals.md" in seen.new_outputs[0]
    assert "new.md" not in seen.new_outputs[0].replace("policies/new.md", "")
    assert seen.new_outputs[0].count("Read-only file system") >= 2
