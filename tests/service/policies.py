"""The policy of the tests, `TURNWIRE_POLICY=tests.service.policies:judge`, and agents that only it needs.

What it says is in what it is asked about: `say: …` in the user's text or in a tool's `q` is what it answers.
"""

import json
import sys
from pathlib import Path
from typing import Any

from agents import Agent, RunContextWrapper, Tool, function_tool
from agents.mcp import MCPServerStdio

from tests.service.gates import pass_gate

MCP_SERVER = Path(__file__).parents[1] / "runtime/mcp_server.py"

connected = Agent(
    name="connected",
    instructions="Use the server.",
    mcp_servers=[
        MCPServerStdio(
            {"command": sys.executable, "args": [str(MCP_SERVER), "stdio"]}, client_session_timeout_seconds=20
        )
    ],
)


class Improviser(Agent[Any]):
    """Makes its tools anew for each step, as a sandbox does: nobody has seen them when it is registered."""

    async def get_all_tools(self, run_context: RunContextWrapper[Any]) -> list[Tool]:
        return [function_tool(look, name_override="improvised")]


def look(q: str) -> str:
    """Look a word up."""
    return f"{q}: found"


improviser = Improviser(name="improviser", instructions="Use your tool.")

AGENTS = [connected, improviser]


async def judge(question: dict[str, Any]) -> Any:
    """`allow`, unless it is told to answer otherwise, to raise, to tell what it was asked, or to wait."""
    if question["type"] == "model_request":
        said = question["last_user_text"]
    else:
        said = str((question["arguments"] or {}).get("q") or question["tool"])
    match said.partition(": ")[::2]:
        case ("deny", reason):
            return {"decision": "deny", "reason": reason}
        case ("say", answer):
            return json.loads(answer)
        case ("raise", what):
            raise ValueError(what)
        case ("tell", _):
            told = {k: v for k, v in question.items() if not k.endswith("_id")}
            return {"decision": "deny", "reason": json.dumps(told)}
        case ("wait", gate):
            await pass_gate(gate)
    return "deny" if said == "process_id" else "allow"
