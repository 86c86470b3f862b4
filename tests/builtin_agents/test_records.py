"""What is on file, and how it is found."""

from app.builtin_agents.healthcare_support.records import Records
from app.builtin_agents.healthcare_support.results import Intent

RECORDS = Records.load()


def test_there_are_six_scenarios_of_the_ids_that_clients_know() -> None:
    assert set(RECORDS.scenarios) == {
        "eligibility_verification_basic",
        "blue_cross_pt_benefits",
        "referral_status_check",
        "billing_coverage_clarification",
        "prior_auth_confusion_ct",
        "messy_ambiguous_knee_case",
    }


def test_every_patient_is_insured_and_half_of_their_referrals_are_on_file() -> None:
    referrals = [RECORDS.referral(referral_id=p.referral_id, patient_id=None) for p in RECORDS.patients]
    assert [found.lookup_status for found in referrals].count("found") == len(RECORDS.referrals) == 3
    for patient in RECORDS.patients:
        found = RECORDS.coverage(
            payer=patient.payer, member_id=patient.member_id, date_of_birth=patient.date_of_birth
        )
        assert found.lookup_status == "found"


def test_a_patient_is_found_by_id_by_phone_or_by_name() -> None:
    by_id = RECORDS.patient(patient_id="pat-1003", phone=None, name=None)
    by_phone = RECORDS.patient(patient_id=None, phone="+1 555 0103", name=None)
    by_name = RECORDS.patient(patient_id=None, phone=None, name="sunita  rao")
    assert by_id == by_phone == by_name
    assert by_id.record is not None
    assert by_id.record.name == "Sunita Rao"


def test_nobody_is_found_by_nothing() -> None:
    assert RECORDS.patient(patient_id=None, phone=None, name=None).lookup_status == "not_found"
    assert RECORDS.referral(referral_id=None, patient_id=None).lookup_status == "not_found"


def test_coverage_opens_only_to_all_three_facts() -> None:
    found = RECORDS.coverage(payer="Blue Cross", member_id="BCX-440171", date_of_birth="1984-02-18")
    assert found.lookup_status == "not_found"
    assert found.record is None


def test_a_referral_is_found_by_its_patient_too() -> None:
    found = RECORDS.referral(referral_id=None, patient_id="PAT-1005")
    assert found.record is not None
    assert found.record.referral_id == "REF-2005"


def test_about_a_dozen_policies_state_rules_by_number() -> None:
    assert len(RECORDS.policies) >= 12
    assert all(b"Applies to:" in text and b".1: " in text for text in RECORDS.policies.values())


def test_the_scenarios_cover_every_intent() -> None:
    expected = {scenario.expected.intent for scenario in RECORDS.scenarios.values()}
    assert expected == set(Intent.__args__)  # type: ignore[attr-defined]
