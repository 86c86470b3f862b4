"""A case handed to a person: what is sent, and the id that the same payload always gets."""

import hashlib
import json
from typing import Literal

from pydantic import BaseModel

from app.builtin_agents.healthcare_support.results import Priority

ROUTE_TOOL = "route_to_human_queue"
ID_DIGITS = 12


class Handoff(BaseModel):
    """The answer of `route_to_human_queue`."""

    status: Literal["queued"] = "queued"
    handoff_id: str
    queue: str
    priority: Priority
    reason: str
    summary: str

    @classmethod
    def of(cls, *, queue: str, priority: Priority, reason: str, summary: str) -> "Handoff":
        payload = {"queue": queue, "priority": priority, "reason": reason, "summary": summary}
        return cls(handoff_id=handoff_id(payload), **payload)


def handoff_id(payload: dict[str, str]) -> str:
    """`HUMAN-` and the first 12 hex digits of the SHA-256 of the payload as JSON with sorted keys."""
    digest = hashlib.sha256(json.dumps(payload, sort_keys=True).encode()).hexdigest()
    return f"HUMAN-{digest[:ID_DIGITS]}"
