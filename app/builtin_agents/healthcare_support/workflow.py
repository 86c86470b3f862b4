"""A turn at the healthcare support desk, from the case to the payload."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agents import Agent, RunConfig
from agents.result import RunResultBase
from agents.sandbox import SandboxRunConfig
from agents.sandbox.session import BaseSandboxSession

from app.builtin_agents.healthcare_support.case import Case, read_case
from app.builtin_agents.healthcare_support.desk import Decisions, Desk, DeskState
from app.builtin_agents.healthcare_support.documents import fallback_documents
from app.builtin_agents.healthcare_support.records import Records
from app.builtin_agents.healthcare_support.results import CaseResolution, MemoryRecap
from app.builtin_agents.healthcare_support.support_agents import (
    DESCRIPTION,
    NAME,
    SupportAgents,
    support_agents,
)
from app.builtin_agents.healthcare_support.workspace import (
    LAYOUT,
    PROTECTED,
    manifest,
    output_names,
    read_output,
)
from app.domain.ids import TurnId
from app.domain.json_types import Item, JsonObject
from app.domain.ports import ArtifactRefused
from app.runtime.workflow import RunMore, Workflow, WorkflowRun, WorkflowTurn
from app.sandbox import Sandboxes

MAX_APPROVAL_ROUNDS = 5
MEDIA_TYPE = "text/markdown"
_SHOWN = {"scenario_id", "description", "transcript"}


class HealthcareSupport(Workflow):
    """The built-in agent `healthcare_support`."""

    name = NAME
    needs_sandbox = True

    def __init__(self, sandboxes: Sandboxes, records: Records | None = None) -> None:
        self._sandboxes = sandboxes
        self._records = records or Records.load()
        told = "\n".join(f"- {s.scenario_id}: {s.description}" for s in self._records.scenarios.values())
        self.description = (
            f"{DESCRIPTION}\nScenarios (send an id, or a case as JSON or in your own words):\n{told}"
        )
        self.examples = (*self._records.scenarios, *_other_examples(self._records))

    @property
    def agents(self) -> list[Agent[Any]]:
        agents = support_agents(self._records)
        return [agents.orchestrator, agents.memory]

    @asynccontextmanager
    async def open(self, turn: WorkflowTurn) -> AsyncIterator[WorkflowRun]:
        case = read_case(turn.input_text, self._records.scenarios)
        if turn.saved is None:
            turn.report("scenario_loaded", case.model_dump(include=_SHOWN))
            turn.report("memory_ready", {"session_id": turn.conversation_id})
        async with self._sandbox(turn, case) as session:
            if turn.saved is None:
                turn.report("trace_ready", {"trace_id": turn.trace_id, "trace_url": turn.trace_url})
            yield self._run(turn, case, session)

    @asynccontextmanager
    async def _sandbox(self, turn: WorkflowTurn, case: Case) -> AsyncIterator[BaseSandboxSession]:
        """The turn's sandbox, told of when it is ready and once nothing of it runs: at a pause too, and also if
        it never was ready."""
        backend = self._sandboxes.backend
        try:
            async with self._sandboxes.session(
                TurnId(turn.turn_id), manifest(case, self._records), protected=PROTECTED
            ) as session:
                turn.report("sandbox_ready", {"backend": backend, "workspace": list(LAYOUT)})
                yield session
        finally:
            turn.report("sandbox_stopped", {"backend": backend})

    async def ended(self, turn_id: str) -> None:
        await self._sandboxes.remove(TurnId(turn_id))

    def _run(self, turn: WorkflowTurn, case: Case, session: BaseSandboxSession) -> WorkflowRun:
        desk = Desk(self._records, case, session, DeskState.model_validate(turn.saved or {}))
        agents = support_agents(self._records)
        return WorkflowRun(
            agent=agents.orchestrator,
            input=[_user_message(case.as_text())],
            context=desk,
            run_config=RunConfig(
                workflow_name=NAME,
                trace_id=turn.trace_id,
                group_id=case.scenario_id,
                sandbox=SandboxRunConfig(session=session),
            ),
            hooks=Decisions(),
            max_approval_rounds=MAX_APPROVAL_ROUNDS,
            save=desk.save,
            finish=Closing(turn, desk, agents).finish,
        )


class Closing:
    """What follows the resolution: documents, memory, payload."""

    def __init__(self, turn: WorkflowTurn, desk: Desk, agents: SupportAgents) -> None:
        self._turn = turn
        self._desk = desk
        self._agents = agents

    async def finish(self, result: RunResultBase, run_more: RunMore) -> JsonObject:
        resolution = self._corrected(CaseResolution.model_validate(result.final_output))
        artifacts, resolution = await self._keep_files(resolution)
        recap = await run_more(self._agents.memory, _recap_request(resolution), context=self._desk)
        payload = self._payload(resolution, artifacts, recap)
        self._turn.report("workflow_complete", {"payload": payload})
        return payload

    def _corrected(self, resolution: CaseResolution) -> CaseResolution:
        """The resolution with what the desk knows better than a model: the case and the handoff."""
        handoffs = self._desk.state.handoffs
        return resolution.model_copy(
            update={
                "scenario_id": self._desk.case.scenario_id,
                "route_to_human": bool(handoffs),
                "handoff_id": handoffs[-1].handoff_id if handoffs else None,
            }
        )

    async def _keep_files(self, resolution: CaseResolution) -> tuple[list[JsonObject], CaseResolution]:
        """What stands in `output/` becomes artifacts, with a fallback for each document that does not."""
        session = self._desk.session
        written = await output_names(session)
        fallbacks = fallback_documents(resolution)
        artifacts: list[JsonObject] = []
        for name in sorted({*written, *fallbacks}):
            content = await read_output(session, name) if name in written else fallbacks[name]
            if content is not None and (artifact := await self._keep(name, content)):
                artifacts.append(artifact)
        self._turn.report("artifacts_ready", {"files": artifacts})
        return artifacts, resolution.model_copy(update={"files": [a["name"] for a in artifacts]})

    async def _keep(self, name: str, content: bytes) -> JsonObject | None:
        """A file beyond the limits is left out and told of: the resolution does not depend on it."""
        try:
            return await self._turn.artifacts.add(name, content, _media_type(name))
        except ArtifactRefused as refused:
            self._turn.report("artifact_refused", {"name": name, "reason": str(refused)})
            return None

    def _payload(
        self, resolution: CaseResolution, artifacts: list[JsonObject], recap: RunResultBase
    ) -> JsonObject:
        case = self._desk.case
        return {
            "scenario_id": case.scenario_id,
            "description": case.description,
            "transcript": case.transcript,
            "trace_id": self._turn.trace_id,
            "trace_url": self._turn.trace_url,
            "resolution": resolution.model_dump(mode="json"),
            "memory_recap": MemoryRecap.model_validate(recap.final_output).model_dump(mode="json"),
            "artifacts": artifacts,
            "session_id": self._turn.conversation_id,
            "session_memory_items": len(recap.to_input_list()),
        }


def _recap_request(resolution: CaseResolution) -> str:
    facts = json.dumps(resolution.model_dump(mode="json"), ensure_ascii=False)
    return f"Recap the newest case of this conversation. It was resolved as:\n{facts}"


def _media_type(name: str) -> str | None:
    return MEDIA_TYPE if name.endswith(".md") else None


def _user_message(text: str) -> Item:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def _other_examples(records: Records) -> list[str]:
    """One case as JSON and one in somebody's own words."""
    first = next(iter(records.scenarios.values()), None)
    if first is None:
        return []
    return [
        json.dumps(first.as_case().model_dump(mode="json"), ensure_ascii=False),
        "My phone is +1-555-0103. Has my cardiology referral been approved?",
    ]
