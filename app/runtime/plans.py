"""What a turn runs: a plain agent with its context, or what a workflow has prepared.

Both come as a `WorkflowRun`, open for as long as the run lasts, so that the runner knows only one thing.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

from agents import Agent, RunConfig
from agents.run_config import SandboxRunConfig
from agents.sandbox.session.sandbox_client import BaseSandboxClient

from app.domain.conversation import NewItem
from app.domain.ids import TurnId
from app.domain.json_types import Item, JsonObject
from app.domain.ports import ArtifactKeeper, RunJob
from app.domain.turn import Turn
from app.runtime import contexts
from app.runtime.agent_graph import works_in_sandbox
from app.runtime.contexts import ContextFactory
from app.runtime.observer import current_scope
from app.runtime.preparation import Preparation
from app.runtime.progress import report
from app.runtime.scope import TurnScope
from app.runtime.tracing import NO_TRACING, Tracing, trace_id
from app.runtime.turn_artifacts import TurnArtifacts
from app.runtime.workflow import Workflow, WorkflowRun, WorkflowTurn


class TurnSandboxes(Protocol):
    """Where sandbox agents run their commands; `sandbox.Sandboxes` is one."""

    def client(self, turn_id: TurnId) -> BaseSandboxClient[Any]:
        """Raises SandboxUnavailable where there is none."""
        ...

    async def remove(self, turn_id: TurnId) -> None: ...


class Plans:
    """Opens what turns run."""

    def __init__(
        self,
        preparation: Preparation,
        context_factory: ContextFactory,
        artifacts: ArtifactKeeper,
        sandboxes: TurnSandboxes,
        tracing: Tracing = NO_TRACING,
    ) -> None:
        self._preparation = preparation
        self._contexts = context_factory
        self._artifacts = artifacts
        self._sandboxes = sandboxes
        self._tracing = tracing

    @asynccontextmanager
    async def open(
        self, job: RunJob, scope: TurnScope, history: Sequence[Item], saved: JsonObject | None
    ) -> AsyncIterator[WorkflowRun]:
        """What to run; `saved` is what the plan's `save` gave when the turn was paused."""
        token = current_scope.set(scope.top)
        try:
            runnable = self._preparation.runnable(job.prepared.agent)
            if isinstance(runnable, Workflow):
                turn = self._workflow_turn(job, scope, history, saved)
                async with runnable.open(turn) as run:
                    yield run
            else:
                async with self._contexts.open(job.turn, saved) as context:
                    yield WorkflowRun(
                        agent=self._preparation.agent_for(job.turn.request, runnable),
                        run_config=self._sandboxed(job.turn, runnable),
                        input=[new.item for new in job.prepared.input_items],
                        context=context,
                        save=lambda: contexts.saved(context),
                    )
        finally:
            current_scope.reset(token)

    def _sandboxed(self, turn: Turn, agent: Agent[Any]) -> RunConfig | None:
        """Never the SDK's own local backend, which confines nothing: ours, if an agent needs one."""
        if not works_in_sandbox(agent):
            return None
        sandbox = SandboxRunConfig(client=self._sandboxes.client(turn.id))
        return RunConfig(sandbox=sandbox, group_id=turn.conversation_id)

    async def ended(self, turn: Turn) -> None:
        """A turn has ended for good: its workspaces go, and what a workflow kept for it."""
        await self._sandboxes.remove(turn.id)
        runnable = self._preparation.runnable(turn.agent)
        if isinstance(runnable, Workflow):
            await runnable.ended(turn.id)

    def _workflow_turn(
        self, job: RunJob, scope: TurnScope, history: Sequence[Item], saved: JsonObject | None
    ) -> WorkflowTurn:
        turn = job.turn
        items = [new.item for new in job.prepared.input_items]
        return WorkflowTurn(
            turn_id=turn.id,
            conversation_id=turn.conversation_id,
            caller=turn.caller.name,
            user=turn.caller.user,
            metadata=dict(turn.metadata),
            input=items,
            input_text=_text(job.prepared.input_items),
            history=list(history),
            trace_id=trace_id(turn),
            trace_url=self._tracing.url(trace_id(turn)),
            report=report,
            artifacts=TurnArtifacts(self._artifacts, turn, scope),
            saved=saved,
        )


def user_message(text: str) -> Item:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def _text(items: Sequence[NewItem]) -> str:
    """The text of the input's messages, joined by blank lines."""
    texts: list[str] = []
    for new in items:
        content = new.item.get("content")
        parts = [content] if isinstance(content, str) else [p.get("text") for p in content or ()]
        texts += [part for part in parts if part]
    return "\n\n".join(texts)
