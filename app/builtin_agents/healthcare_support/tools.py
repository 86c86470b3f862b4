"""The desk's function tools: three lookups, and the way to a person.

They answer in JSON text of their own: the SDK alone would show a model the `str()` of what a tool returns.
"""

from typing import Any

from agents import RunContextWrapper, function_tool

from app.builtin_agents.healthcare_support.desk import Desk
from app.builtin_agents.healthcare_support.handoff import ROUTE_TOOL, Handoff
from app.builtin_agents.healthcare_support.results import Priority


@function_tool
async def patient_info_lookup(
    context: RunContextWrapper[Desk],
    patient_id: str | None = None,
    phone: str | None = None,
    name: str | None = None,
) -> str:
    """Find a patient's record. Give one of the three; the id is the surest.

    Args:
        patient_id: Such as PAT-1001.
        phone: In any notation.
        name: The full name.
    """
    records = context.context.records
    return records.patient(patient_id=patient_id, phone=phone, name=name).model_dump_json()


@function_tool
async def insurance_eligibility_lookup(
    context: RunContextWrapper[Desk], payer: str, member_id: str, date_of_birth: str
) -> str:
    """Find a member's insurance record: status, copays, deductible, services that need prior authorization.

    Args:
        payer: As it stands in the patient's record.
        member_id: As it stands in the patient's record.
        date_of_birth: As YYYY-MM-DD.
    """
    found = context.context.records.coverage(payer=payer, member_id=member_id, date_of_birth=date_of_birth)
    return found.model_dump_json()


@function_tool
async def appointment_referral_status_lookup(
    context: RunContextWrapper[Desk], referral_id: str | None = None, patient_id: str | None = None
) -> str:
    """Find a referral by its own id or by its patient's.

    Args:
        referral_id: Such as REF-2003.
        patient_id: Such as PAT-1003.
    """
    found = context.context.records.referral(referral_id=referral_id, patient_id=patient_id)
    return found.model_dump_json()


async def _needs_approval(context: RunContextWrapper[Desk], arguments: dict[str, Any], call_id: str) -> bool:
    """Until a person has approved a handoff in this turn."""
    state = context.context.state
    if state.handoff_granted:
        return False
    if call_id not in state.undecided_calls:
        state.undecided_calls.append(call_id)
    return True


@function_tool(name_override=ROUTE_TOOL, needs_approval=_needs_approval)
async def route_to_human_queue(
    context: RunContextWrapper[Desk], queue: str, priority: Priority, reason: str, summary: str
) -> str:
    """Hand the case to a person. Only for a case that is ambiguous or contradicts itself.

    Args:
        queue: The queue that the policy packet names.
        priority: The priority that the policy packet names.
        reason: Why a person has to look at it, in one sentence.
        summary: What that person needs to know.
    """
    handoff = Handoff.of(queue=queue, priority=priority, reason=reason, summary=summary)
    handoffs = context.context.state.handoffs
    if handoff not in handoffs:
        handoffs.append(handoff)
    return handoff.model_dump_json()
