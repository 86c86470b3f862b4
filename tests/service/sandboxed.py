"""Agents that work in a sandbox: `TURNWIRE_AGENTS=tests.service.sandboxed:AGENTS`."""

import asyncio
from typing import Any

from agents import Agent, Tool, function_tool
from agents.sandbox import SandboxAgent
from agents.sandbox.capabilities import Capability, Shell

from app.runtime.progress import report


class Almanac(Capability):
    """Makes its tools for each run, as the SDK's own capabilities do."""

    type: str = "almanac"

    def tools(self) -> list[Tool]:
        return [function_tool(tides), function_tool(forever)]


async def tides(place: str) -> dict[str, Any]:
    """When the tide is high."""
    report("asked", {"place": place})
    return {"place": place, "high": None}


async def forever() -> str:
    """Never returns."""
    await asyncio.Event().wait()
    return ""


explorer = SandboxAgent(
    name="explorer",
    instructions="Use the shell.",
    capabilities=[Shell(), Almanac()],
    handoff_description="Looks",
)
foreman = Agent(name="foreman", instructions="Hand over.", handoffs=[explorer])
clerk = Agent(name="clerk", instructions="Answer.")

AGENTS = [explorer, foreman, clerk]
