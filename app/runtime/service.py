"""The runtime as `turns` sees it: the `Runtime` port over preparation and runner."""

import logging
from collections.abc import Sequence

from app.domain.conversation import NewItem
from app.domain.json_types import JsonObject
from app.domain.ports import EventSink, Prepared, RunControl, RunJob, RunOutcome
from app.domain.turn import Turn, TurnRequest
from app.errors import AgentNotFound
from app.runtime.containment import contained
from app.runtime.plans import Plans
from app.runtime.preparation import Preparation
from app.runtime.registry import Registry
from app.runtime.runner import Runner

logger = logging.getLogger(__name__)


class AgentRuntime:
    """Runs agents. Nothing in it knows HTTP, the store, or other turns."""

    def __init__(self, registry: Registry, preparation: Preparation, plans: Plans, runner: Runner) -> None:
        self._registry = registry
        self._preparation = preparation
        self._plans = plans
        self._runner = runner

    def prepare(
        self, request: TurnRequest, *, agent: str | None = None, last_agent: str | None = None
    ) -> Prepared:
        return self._preparation.prepare(request, agent=agent, last_agent=last_agent)

    def seed_items(self, items: Sequence[JsonObject]) -> tuple[NewItem, ...]:
        return self._preparation.seed_items(items)

    async def ended(self, turn: Turn) -> None:
        try:
            await contained(self._plans.ended(turn))
        except AgentNotFound:
            return
        except Exception:
            # Also a workflow's own code: what it leaves behind must not hold the next turn.
            logger.exception("what was kept for a turn was not removed", extra={"turn_id": turn.id})

    def check_arguments(self, agent: str, tool: str, arguments: JsonObject, loc: list[str | int]) -> None:
        self._preparation.check_arguments(agent, tool, arguments, loc)

    def agents(self) -> list[JsonObject]:
        return self._registry.descriptions()

    async def run(self, job: RunJob, sink: EventSink, control: RunControl, deadline: float) -> RunOutcome:
        return await self._runner.run(job, sink, control, deadline)
