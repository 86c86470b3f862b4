"""One turn on the real runner and the real SDK: history in, requests and items out."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from agents import Agent
from agents.sandbox.session.sandbox_client import BaseSandboxClient

from app.domain.conversation import Compaction, NewItem, StoredItem
from app.domain.events import Event, Origin
from app.domain.ids import ArtifactId, ItemId, TurnId
from app.domain.json_types import Item
from app.domain.pause import Answers
from app.domain.ports import Prepared, RunJob, RunOutcome, StoredArtifact
from app.domain.turn import CancelMode, Turn, TurnRequest, now
from app.domain.usage import Usage
from app.runtime.adoption import Adoption
from app.runtime.agent_loading import Found, Runnable
from app.runtime.agent_runner import TurnAgentRunner, installed
from app.runtime.compaction import CompactionRules, Compactor
from app.runtime.contexts import ContextFactory
from app.runtime.models.foreign import tapped
from app.runtime.models.transport import FixedEndpoint, Upstream, Wire
from app.runtime.plans import Plans
from app.runtime.preparation import Preparation
from app.runtime.providers import Providers
from app.runtime.registry import Registry
from app.runtime.runner import RunLimits, Runner
from app.runtime.tools import observed
from app.runtime.tracing import NO_TRACING
from tests.runtime.models.harness import QUICK
from tests.runtime.models.loopback import Loopback
from tests.sample_turn import sample_turn


class NoArtifacts:
    """No turn here offers files."""

    async def add(self, turn: Turn, name: str, content: bytes, media_type: str | None) -> StoredArtifact:
        raise NotImplementedError

    async def of_turn(self, turn: Turn) -> list[StoredArtifact]:
        return []

    async def get(self, turn: Turn, artifact_id: str) -> StoredArtifact:
        raise NotImplementedError

    def content(self, artifact: StoredArtifact) -> AsyncIterator[bytes]:
        raise NotImplementedError

    async def of_conversation(self, conversation_key: int) -> list[ArtifactId]:
        return []

    async def remove(self, artifact_ids: list[ArtifactId]) -> None:
        return None

    async def sweep(self) -> int:
        return 0


class NoSandboxes:
    def client(self, turn_id: TurnId) -> BaseSandboxClient[Any]:
        raise NotImplementedError

    async def remove(self, turn_id: TurnId) -> None:
        return None


@dataclass
class Told:
    """What a run reports, and its control: nobody asks it to stop."""

    events: list[Event] = field(default_factory=list)
    items: list[NewItem] = field(default_factory=list)
    cancel_mode: CancelMode | None = None

    def emit(self, event: Event, origin: Origin | None = None, items: Sequence[NewItem] = ()) -> None:
        self.events.append(event)
        self.items.extend(items)

    def compacted(self, event: Event, compaction: Compaction) -> None:
        self.events.append(event)

    def record(self, items: Sequence[NewItem]) -> None:
        self.items.extend(items)

    def spent(self, cost: Usage, *, top_level: bool) -> None:
        """Costs are another test's."""

    def upstream_failed(self, code: str) -> None:
        """Failures are counted by another test."""

    async def committed(self) -> None:
        """Nothing is stored here."""

    def on_cancel(self, callback: Callable[[CancelMode], None]) -> None:
        """Nobody cancels."""


@dataclass
class Bench:
    """Runs turns of the registered agents."""

    runner: Runner
    preparation: Preparation

    async def run(
        self,
        history: Sequence[Item] = (),
        said: Any = "Go on.",
        *,
        told: Told | None = None,
        paused: bytes | None = None,
        answers: Answers | None = None,
        origin: str | None = None,
        **request: Any,
    ) -> tuple[RunOutcome, Told]:
        """One run of a turn; with `paused` it goes on. `origin`: who made the history's items."""
        told = told or Told()
        asked = TurnRequest(input=said, **request)
        prepared = numbered(self.preparation.prepare(asked))
        job = RunJob(
            turn=sample_turn(agent=prepared.agent, model=prepared.model, request=asked),
            prepared=prepared,
            history=tuple(stored(number, item, origin) for number, item in enumerate(history)),
            recorded=(*prepared.input_items, *told.items) if paused else (),
            run=2 if paused else 1,
            steps_before=1 if paused else 0,
            state=paused,
            answers=answers or Answers(),
        )
        return await self.runner.run(job, told, told, asyncio.get_running_loop().time() + 60), told


def numbered(prepared: Prepared) -> Prepared:
    """The same input under ids that are the same each time."""
    return replace(
        prepared,
        input_items=tuple(
            NewItem(ItemId(f"item_in{number}"), new.item) for number, new in enumerate(prepared.input_items)
        ),
    )


def stored(number: int, item: Item, origin: str | None) -> StoredItem:
    made = origin if item.get("role") == "assistant" or item.get("type") == "reasoning" else None
    return StoredItem(ItemId(f"item_{number}"), None, now(), superseded=False, item=item, origin=made)


@asynccontextmanager
async def bench(
    url: str, *agents: Runnable, wire: Wire = "responses", history_items: int = 0
) -> AsyncIterator[Bench]:
    """The runner with these agents, the first of them the default one, on the upstream at `url`."""
    upstream = Upstream("loop", wire, FixedEndpoint(url, None), limits=QUICK, trust_env=False)
    models = Providers(upstream, default_model="m")
    adoption = Adoption(lambda tool: observed(tool, timeout_s=10), tapped, lambda mcp_server: mcp_server)
    registry = Registry([Found(agent, "test:agents") for agent in agents], [], adoption)
    preparation = Preparation(registry, models, lambda: None)
    agent_runner = TurnAgentRunner(models, registry.adopt, tracing=NO_TRACING)
    plans = Plans(preparation, ContextFactory(), NoArtifacts(), NoSandboxes())
    compactor = Compactor(
        CompactionRules(None, lambda name: 0),
        lambda job: preparation.first_model(job.turn.request, job.prepared.agent),
    )
    runner = Runner(preparation, agent_runner, plans, RunLimits(10, history_items, 1 << 20), compactor)
    try:
        with installed(agent_runner):
            yield Bench(runner, preparation)
    finally:
        await models.aclose()


def plain(**fields: Any) -> Agent[Any]:
    return Agent(name="plain", **fields)


def dialogue(count: int) -> list[Item]:
    """So many items: user and assistant by turns, as the store holds them."""
    return [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": f"Question {n}"}]}
        if n % 2 == 0
        else {
            "type": "message",
            "role": "assistant",
            "id": f"msg_{n}",
            "status": "completed",
            "content": [{"type": "output_text", "text": f"Answer {n}", "annotations": []}],
        }
        for n in range(count)
    ]


def sent(server: Loopback) -> list[list[Item]]:
    """The items or messages of each request."""
    return [r.body.get("input") or r.body["messages"] for r in server.requests]
