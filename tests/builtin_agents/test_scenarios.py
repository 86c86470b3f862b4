"""Cases from end to end on the SDK's own runner: real agents, real tools, a real shell, a brain for a model."""

from pathlib import Path

import pytest

from app.builtin_agents.healthcare_support import Records
from app.sandbox import Sandboxes
from tests.builtin_agents.conftest import Edit
from tests.builtin_agents.rooms import Ended, Room

pytestmark = pytest.mark.anyio

KNEE = "messy_ambiguous_knee_case"
DOCUMENTS = ["human_review_checklist.md", "policy_findings.md"]
SCENARIOS = Records.load().scenarios


async def test_the_desk_describes_its_scenarios_with_inputs_to_try(room: Room) -> None:
    for scenario in SCENARIOS.values():
        assert scenario.description in room.desk.description
        assert scenario.scenario_id in room.desk.examples
    assert room.desk.agents[0].name == room.desk.name == "healthcare_support"


@pytest.mark.parametrize("scenario_id", SCENARIOS)
async def test_each_scenario_ends_as_it_should(room: Room, scenario_id: str) -> None:
    expected = SCENARIOS[scenario_id].expected
    ended = await room.resolve(scenario_id, *([(True,)] if expected.route_to_human else []))
    resolution = ended.payload["resolution"]
    assert resolution["scenario_id"] == scenario_id
    assert resolution["intent"] == expected.intent
    assert resolution["route_to_human"] == expected.route_to_human
    assert SCENARIOS[scenario_id].patient_metadata["patient_id"] in resolution["patient"]
    assert resolution["files"] == sorted(room.artifacts.files) == DOCUMENTS
    assert (resolution["handoff_id"] is not None) == expected.route_to_human


async def test_the_payload_holds_the_case_its_trace_its_files_and_its_memory(room: Room) -> None:
    ended = await room.resolve("referral_status_check")
    assert set(ended.payload) == {
        "scenario_id",
        "description",
        "transcript",
        "trace_id",
        "trace_url",
        "resolution",
        "memory_recap",
        "artifacts",
        "session_id",
        "session_memory_items",
    }
    assert [artifact["name"] for artifact in ended.payload["artifacts"]] == DOCUMENTS
    assert ended.payload["session_id"] == "conv_1"
    assert ended.payload["session_memory_items"] == len(ended.history)
    recap = ended.payload["memory_recap"]
    assert recap["patient"] == ended.payload["resolution"]["patient"]
    assert recap["files"] == DOCUMENTS
    assert recap["handoff_id"] is None


async def test_workflow_events_come_in_order_and_the_sandbox_is_gone_last(room: Room) -> None:
    ended = await room.resolve("referral_status_check")
    assert room.names() == [
        "scenario_loaded",
        "memory_ready",
        "sandbox_ready",
        "trace_ready",
        "artifacts_ready",
        "workflow_complete",
        "sandbox_stopped",
    ]
    told = dict(room.events)
    assert set(told["scenario_loaded"]) == {"scenario_id", "description", "transcript"}
    assert told["workflow_complete"] == {"payload": ended.payload}
    assert told["sandbox_stopped"] == {"backend": "bubblewrap"}


async def test_a_referral_that_is_not_on_file_is_said_to_be_missing(room: Room) -> None:
    ended = await room.resolve("eligibility_verification_basic")
    assert "No referral was found" in ended.payload["resolution"]["benefits_summary"]


async def test_a_copay_changed_in_a_fixture_changes_the_answer(sandboxes: Sandboxes, edited: Edit) -> None:
    records = edited("insurance.json", '"copay_specialist": 45', '"copay_specialist": 417')
    ended = await Room(sandboxes, records=records).resolve("eligibility_verification_basic")
    assert "specialist $417" in ended.payload["resolution"]["patient_response"]


async def test_a_sentence_changed_in_a_policy_changes_answer_and_artifact(
    sandboxes: Sandboxes, edited: Edit
) -> None:
    records = edited("policies/referral_status.md", "within 5 business days", "within 9 full moons")
    room = Room(sandboxes, records=records)
    ended = await room.resolve("referral_status_check")
    assert "within 9 full moons" in ended.payload["resolution"]["policy_summary"]
    assert b"within 9 full moons" in room.artifacts.files["policy_findings.md"]


async def test_a_patient_is_found_by_the_phone_in_a_free_form_case(room: Room) -> None:
    ended = await room.resolve("My phone is +1-555-0103. Has my cardiology referral been approved?")
    assert ended.payload["scenario_id"] == "free_form"
    assert "Sunita Rao (PAT-1003)" in ended.payload["resolution"]["patient"]
    assert ended.payload["resolution"]["intent"] == "referral_status_question"


async def test_nobody_on_file_is_a_result_too(room: Room) -> None:
    ended = await room.resolve("This is Quentin Nobody. Is my coverage active?")
    assert ended.payload["resolution"]["patient"] == "nobody on file"


async def test_a_second_case_remembers_the_first(sandboxes: Sandboxes) -> None:
    first = await Room(sandboxes).resolve("blue_cross_pt_benefits")
    second = Room(sandboxes, history=first.history, turn_id="turn_2")
    ended = await second.resolve("And what was the copay of that plan again?")
    assert "Ingrid Oyelaran" in ended.payload["resolution"]["patient"]
    assert "blue_cross_pt_benefits" in ended.payload["memory_recap"]["earlier_cases"][0]
    assert ended.payload["session_memory_items"] > first.payload["session_memory_items"]


async def test_another_conversation_knows_nothing_of_it(room: Room) -> None:
    ended = await room.resolve("And what was the copay of that plan again?")
    assert ended.payload["resolution"]["patient"] == "nobody on file"
    assert ended.payload["memory_recap"]["earlier_cases"] == []


async def test_the_knee_case_waits_with_its_sandbox_stopped_and_goes_on_in_another_process(
    sandboxes: Sandboxes,
) -> None:
    before = Room(sandboxes)
    state = await before.begin(KNEE)
    assert isinstance(state, dict)
    assert before.names()[-1] == "sandbox_stopped"

    after = Room(sandboxes)
    after.saved, after.input_text = before.saved, before.input_text
    ended = await after.go_on(state, (True,))
    assert isinstance(ended, Ended)
    assert ended.payload["resolution"]["handoff_id"].startswith("HUMAN-")
    assert after.names()[0] == "sandbox_ready"
    assert b"HR.1" in after.artifacts.files["policy_findings.md"]


async def test_the_workspace_is_removed_when_the_turn_has_ended(room: Room, tmp_path: Path) -> None:
    await room.resolve("referral_status_check")
    assert (tmp_path / room.turn_id).is_dir()
    await room.desk.ended(room.turn_id)
    assert not (tmp_path / room.turn_id).exists()
