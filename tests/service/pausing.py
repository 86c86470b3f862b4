"""Agents whose turns pause. Their tools report `ran`, so that a log tells how often each of them did run."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agents import Agent, AgentToolStreamEvent, HostedMCPTool, RunContextWrapper, Tool, function_tool

from app.runtime.progress import report
from app.runtime.workflow import Workflow, WorkflowRun, WorkflowTurn
from tests.service.gates import pass_gate


@function_tool(needs_approval=True)
def guarded(q: str) -> str:
    """Looks a word up, if a person approves."""
    report("ran", {"tool": "guarded", "q": q})
    return f"{q}: found behind the guard"


@function_tool(needs_approval=True)
async def guarded_slow(q: str) -> str:
    """Waits at the gate `q`, if a person approves."""
    report("ran", {"tool": "guarded_slow", "q": q})
    await pass_gate(q)
    return f"{q}: found slowly"


@function_tool(needs_approval=True)
def counted(times: int) -> str:
    """Says so often, if a person approves."""
    report("ran", {"tool": "counted", "times": times})
    return "yes " * times


@function_tool
def open_lookup(q: str) -> str:
    """Looks a word up; nobody is asked."""
    report("ran", {"tool": "open_lookup", "q": q})
    return f"{q}: found in the open"


async def _asks_for_secrets(context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
    return "secret" in str(arguments.get("q"))


@function_tool(needs_approval=_asks_for_secrets)
def sometimes(q: str) -> str:
    """Looks a word up; a person is asked about secrets."""
    report("ran", {"tool": "sometimes", "q": q})
    return f"{q}: found at last"


@function_tool(needs_approval=True)
def visits(context: RunContextWrapper[Any]) -> str:
    """Counts in the run's context."""
    context.context.visits += 1
    return f"visit {context.context.visits}"


TOOLS: list[Tool] = [guarded, guarded_slow, counted, open_lookup, sometimes]
guard = Agent(name="guard", instructions="Ask first.", tools=TOOLS)
porter = Agent(name="porter", instructions="Hand over.", handoffs=[guard])
guard_with_way_back = Agent(name="guard_with_way_back", instructions="Ask first.", tools=TOOLS)
revolving = Agent(name="revolving", instructions="Hand over.", handoffs=[guard_with_way_back])
guard_with_way_back.handoffs = [revolving]
clerk = Agent(name="clerk", instructions="I am the clerk.", tools=TOOLS)
chief = Agent(
    name="chief",
    instructions="Delegate.",
    tools=[clerk.as_tool(tool_name="ask_clerk", tool_description="Ask the clerk"), guarded, open_lookup],
)


async def _hears(event: AgentToolStreamEvent) -> None:
    """What a nested agent streams is heard by nobody here."""


head = Agent(
    name="head",
    instructions="Delegate twice.",
    tools=[chief.as_tool(tool_name="ask_chief", tool_description="Ask the chief", on_stream=_hears)],
)
brief = Agent(name="brief", instructions="Be brief.", tools=[guarded], tool_use_behavior="stop_on_first_tool")
guest = Agent(name="guest", instructions="Count.", tools=[visits])
remote = Agent(
    name="remote",
    instructions="Use the server.",
    tools=[
        HostedMCPTool(
            tool_config={
                "type": "mcp",
                "server_label": "files",
                "server_url": "https://mcp.example",
                "require_approval": "always",
            }
        )
    ],
)


class Patient(Workflow):
    """Takes one pause for approval and no more."""

    name = "patient"

    @property
    def agents(self) -> list[Agent[Any]]:
        return [guard]

    @asynccontextmanager
    async def open(self, turn: WorkflowTurn) -> AsyncIterator[WorkflowRun]:
        yield WorkflowRun(guard, turn.input, max_approval_rounds=1)


PAUSING = [guard, porter, revolving, chief, head, brief, guest, remote, Patient()]
_warden = Agent(name="warden", instructions="Ask first.", tools=TOOLS)
RENAMED = [_warden, Agent(name="porter", instructions="Hand over.", handoffs=[_warden])]
"""After a deploy: `guard` and `chief` are gone, and `porter` hands over to somebody else."""
WITHOUT_TOOLS = [Agent(name="guard", instructions="Ask first.")]
"""After a deploy: `guard` has lost its tools."""
_tired_clerk = Agent(name="clerk", instructions="I am the clerk.")
TIRED_CLERK = [
    Agent(
        name="chief",
        instructions="Delegate.",
        tools=[_tired_clerk.as_tool(tool_name="ask_clerk", tool_description="Ask the clerk")],
    )
]
"""After a deploy: the agent that `chief` runs as a tool has lost its tools."""
