"""The two documents of a case, made from its resolution where the policy agent left none."""

from app.builtin_agents.healthcare_support.results import CaseResolution
from app.builtin_agents.healthcare_support.workspace import CHECKLIST, FINDINGS


def fallback_documents(resolution: CaseResolution) -> dict[str, bytes]:
    """A stand-in for each of the two, by name; each says what it is."""
    return {
        FINDINGS: _findings(resolution).encode(),
        CHECKLIST: _checklist(resolution).encode(),
    }


def _findings(resolution: CaseResolution) -> str:
    return f"""\
# Policy findings: {resolution.scenario_id}

Made from the resolution: the policy review left no document.

- Patient: {resolution.patient}
- Intent: {resolution.intent}

## Policies

{resolution.policy_summary}

## Benefits

{resolution.benefits_summary}
"""


def _checklist(resolution: CaseResolution) -> str:
    person = f"handed over as {resolution.handoff_id}" if resolution.handoff_id else "not handed over"
    return f"""\
# Checklist for review: {resolution.scenario_id}

Made from the resolution: the policy review left no document.

- [ ] Next step: {resolution.next_step}
- [ ] A person: {person}
- [ ] Internal summary: {resolution.internal_summary}
"""
