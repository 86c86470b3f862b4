"""A turn as it stands in the store while it runs, for tests that need one and run none."""

from dataclasses import replace
from typing import Any

from app.domain.caller import ANONYMOUS
from app.domain.ids import ConversationId, TurnId
from app.domain.turn import Turn, TurnRequest, now


def sample_turn(**changes: Any) -> Turn:
    started = now()
    made = Turn(
        key=1,
        id=TurnId("turn_1"),
        conversation_key=1,
        conversation_id=ConversationId("conv_1"),
        caller=ANONYMOUS,
        status="running",
        agent="assistant",
        model="m",
        request=TurnRequest(input="hi"),
        created_at=started,
        started_at=started,
        runs=1,
    )
    return replace(made, **changes)
