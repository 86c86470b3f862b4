"""The run context of a turn at the desk: what its tools share, and what a pause must not lose."""

from dataclasses import dataclass, field

from agents import RunContextWrapper, RunHooks
from agents.agent import Agent
from agents.items import TResponseInputItem
from agents.sandbox.session import BaseSandboxSession
from pydantic import BaseModel

from app.builtin_agents.healthcare_support.case import Case
from app.builtin_agents.healthcare_support.handoff import ROUTE_TOOL, Handoff
from app.builtin_agents.healthcare_support.records import Records
from app.builtin_agents.healthcare_support.results import PolicyPacket
from app.domain.json_types import JsonObject


class DeskState(BaseModel):
    """What changes while a turn runs, saved with a pause. A new turn begins with a new one."""

    handoff_granted: bool = False
    """True once a person approved a handoff in this turn: later ones need no approval."""
    undecided_calls: list[str] = []
    """Calls of this step that asked for approval; their answers are looked at before the next model call."""
    handoffs: list[Handoff] = []
    skills_loaded: list[str] = []
    searches: list[str] = []
    packet: PolicyPacket | None = None


@dataclass(slots=True)
class Desk:
    """`session` is the turn's sandbox."""

    records: Records
    case: Case
    session: BaseSandboxSession
    state: DeskState = field(default_factory=DeskState)

    def save(self) -> JsonObject:
        return self.state.model_dump(mode="json")


class Decisions(RunHooks[Desk]):
    """Turns what people decided about handoffs into the turn's grant.

    Nothing tells a tool that its call was rejected: it is just not run. So the answers are read before the
    next model call, when all calls of the step have theirs. One reject outweighs every approval of its step.
    """

    async def on_llm_start(
        self,
        context: RunContextWrapper[Desk],
        agent: Agent[Desk],
        system_prompt: str | None,
        input_items: list[TResponseInputItem],
    ) -> None:
        state = context.context.state
        answers = [context.is_tool_approved(ROUTE_TOOL, call_id) for call_id in state.undecided_calls]
        state.undecided_calls = []
        if False in answers:
            state.handoff_granted = False
        elif True in answers:
            state.handoff_granted = True
