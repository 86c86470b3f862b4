"""What a turn's input stands for."""

import json

import pytest

from app.builtin_agents.healthcare_support.case import FREE_FORM, read_case
from app.builtin_agents.healthcare_support.records import Records

SCENARIOS = Records.load().scenarios


def test_a_scenarios_id_is_that_scenario() -> None:
    case = read_case("  referral_status_check\n", SCENARIOS)
    assert case.transcript == SCENARIOS["referral_status_check"].transcript
    assert case.patient_metadata == {"patient_id": "PAT-1003"}


def test_json_with_a_scenarios_id_is_that_scenario_with_the_fields_that_were_given() -> None:
    given = {"scenario_id": "referral_status_check", "followup_answers": {"Which office?": "Lakeside"}}
    case = read_case(json.dumps(given), SCENARIOS)
    assert case.description == SCENARIOS["referral_status_check"].description
    assert case.followup_answers == {"Which office?": "Lakeside"}


def test_what_a_scenario_expects_is_not_shown_to_a_model() -> None:
    assert "expected" not in read_case("referral_status_check", SCENARIOS).as_text()


def test_other_json_is_a_case_of_the_callers_own() -> None:
    case = read_case('{"scenario_id": "mine", "transcript": "Hello", "colour": "red"}', SCENARIOS)
    assert case.scenario_id == "mine"
    assert case.transcript == "Hello"


def test_own_words_are_the_transcript_of_a_free_form_case() -> None:
    case = read_case("Is my plan active?", SCENARIOS)
    assert (case.scenario_id, case.transcript) == (FREE_FORM, "Is my plan active?")


def test_json_that_is_no_case_is_taken_as_words() -> None:
    for text in ('{"transcript": ["a", "list"]}', "[1, 2]", '{"weather": "fine"}', '{"broken":'):
        assert read_case(text, SCENARIOS).transcript == text


@pytest.mark.parametrize(
    "metadata", ['"\\ud800"', '{"\\udfff": 1}', "[" * 400 + "]" * 400, "[" * 9000 + "]" * 9000]
)
def test_a_case_that_no_file_can_hold_is_taken_as_words(metadata: str) -> None:
    text = f'{{"transcript": "Hello", "patient_metadata": {{"note": {metadata}}}}}'
    case = read_case(text, SCENARIOS)
    assert (case.transcript, case.patient_metadata) == (text, {})
    assert json.loads(case.as_text().encode())["transcript"] == text


def test_a_scenarios_id_that_no_file_can_hold_is_taken_as_words() -> None:
    text = '{"scenario_id": "\\ud800"}'
    assert read_case(text, SCENARIOS).transcript == text
