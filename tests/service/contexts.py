"""The run context of the test service: the usual one, made only once a gate is released if the turn says so."""

from app.runtime.progress import TurnContext
from tests.service.gates import pass_gate


async def made(
    *, caller: str, user: str | None, conversation_id: str, turn_id: str, metadata: dict[str, str]
) -> TurnContext:
    """`metadata["set_up_gate"]` names the gate at which a turn's set-up waits."""
    if "set_up_gate" in metadata:
        await pass_gate(metadata["set_up_gate"])
    return TurnContext(
        caller=caller, user=user, conversation_id=conversation_id, turn_id=turn_id, metadata=metadata
    )


class Remembering:
    """Counts visits, over pauses too."""

    def __init__(self, **asked: object) -> None:
        self.visits = 0

    def to_state(self) -> dict[str, int]:
        return {"visits": self.visits}

    def from_state(self, state: dict[str, int]) -> None:
        self.visits = state["visits"]


remembering = Remembering
