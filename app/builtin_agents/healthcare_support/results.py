"""What each agent of the desk must answer with. Every field is required: strict providers ask for that."""

from typing import Literal

from pydantic import BaseModel, Field

Intent = Literal[
    "eligibility_verification",
    "prior_auth_confusion",
    "referral_status_question",
    "billing_coverage_clarification",
    "general_intake",
]
Found = Literal["found", "not_found", "not_looked_up"]
Priority = Literal["low", "normal", "high", "urgent"]


class BenefitsReview(BaseModel):
    """The benefits agent's answer: what is on file, and nothing that is not."""

    patient_id: str | None = Field(description="null if no patient was found")
    patient_name: str | None
    patient_lookup: Found
    eligibility_lookup: Found
    referral_lookup: Found
    plan_name: str | None
    eligibility_status: Literal["active", "inactive", "unknown"]
    copay_primary_care: int | None = Field(description="whole dollars, from the insurance record")
    copay_specialist: int | None = Field(description="whole dollars, from the insurance record")
    deductible_remaining: int | None
    prior_auth_required_services: list[str]
    referral_status: str | None
    remaining_visits: int | None
    summary: str = Field(description="two or three sentences with the amounts as they are on file")


class PolicyRule(BaseModel):
    """One rule, quoted word for word."""

    policy: str = Field(description="the file's name in policies/")
    number: str = Field(description="the rule's number, such as EL.2")
    text: str


class PolicyPacket(BaseModel):
    """The policy agent's answer. It can only be given through the finalize tool."""

    summary: str = Field(description="what the policies say about this case, in their own words")
    rules: list[PolicyRule]
    missing_information: list[str]
    review_queue: str | None = Field(description="the queue that a rule routes this case to, else null")
    review_priority: Priority | None
    files: list[str] = Field(description="paths of the files that were written")


class CaseResolution(BaseModel):
    """How a case ends."""

    scenario_id: str
    intent: Intent
    patient: str = Field(description="name and id, or who is asking if nobody was found")
    benefits_summary: str
    policy_summary: str
    next_step: str = Field(description="one step, and who takes it")
    route_to_human: bool
    handoff_id: str | None = Field(description="the id that route_to_human_queue gave, else null")
    files: list[str]
    internal_summary: str = Field(description="for colleagues: what was checked and what stays open")
    patient_response: str = Field(description="for the patient, in plain words, without promises of payment")


class MemoryRecap(BaseModel):
    """What the next case in this conversation should remember."""

    patient: str
    intent: Intent
    next_step: str
    handoff_id: str | None
    files: list[str]
    earlier_cases: list[str] = Field(
        description="cases before this one in the conversation, one line each: scenario and patient"
    )
