"""A workflow that files what it is sent: `TURNWIRE_AGENTS=tests.service.filing:filer`."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agents import Agent
from agents.result import RunResultBase

from app.domain.ports import ArtifactRefused
from app.runtime.workflow import RunMore, Workflow, WorkflowRun, WorkflowTurn


class Filer(Workflow):
    """Its input is JSON: a list of `[name, base64, media type or null]`."""

    name = "filer"

    @property
    def agents(self) -> list[Agent[Any]]:
        return [Agent(name="filer", instructions="Answer.")]

    @asynccontextmanager
    async def open(self, turn: WorkflowTurn) -> AsyncIterator[WorkflowRun]:
        async def finish(result: RunResultBase, run_more: RunMore) -> Any:
            return [await _filed(turn, *entry) for entry in json.loads(turn.input_text)]

        yield WorkflowRun(agent=self.agents[0], input=turn.input, finish=finish)


async def _filed(turn: WorkflowTurn, name: str, content: str, media_type: str | None) -> Any:
    try:
        return await turn.artifacts.add(name, base64.b64decode(content), media_type)
    except ArtifactRefused as refused:
        return {"refused": str(refused)}


filer = Filer()
