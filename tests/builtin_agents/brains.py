"""Brains for the upstream: the desk's, held at a stage or astray, as the model's name says."""

from dataclasses import replace
from typing import Any

from demo.healthcare_brain import brain
from tests.upstream.brain import Seen

STAGES = {
    "orchestrator": "benefits_review",
    "benefits": "insurance_eligibility_lookup",
    "policies": "finalize_policy_packet",
}
HELD = "held-at-"
SLEEPING = "sleeping-"
INSISTING = "insisting"


def told(seen: Seen) -> dict[str, Any]:
    """`held-at-STAGE-…` waits there at the gate of that name; `sleeping-SECONDS` lets a command of the sandbox
    sleep; `insisting` asks for a person again and again until one is found."""
    reply = brain(seen)
    stage = stage_of(seen)
    if seen.model.startswith(f"{HELD}{stage}-"):
        return {**reply, "hold": seen.model}
    if seen.model.startswith(SLEEPING) and stage == "policies" and len(seen.new_outputs) == 1:
        command = f"touch output/asleep; sleep {seen.model.removeprefix(SLEEPING)}"
        return {"tool_calls": [{"name": "exec_command", "arguments": {"cmd": command, "yield_time_ms": 60000}}]}
    if seen.model == INSISTING and stage == "orchestrator" and len(seen.new_outputs) > 2:
        return brain(replace(seen, new_outputs=seen.new_outputs[:2]))
    return reply


def stage_of(seen: Seen) -> str:
    return next((stage for stage, tool in STAGES.items() if tool in seen.tools), "memory")
