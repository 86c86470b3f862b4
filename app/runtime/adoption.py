"""What the service adds to each of its agents, in place: an agent stays the object that its maker knows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agents import Agent, FunctionTool, Model
from agents.mcp import MCPServer

from app.runtime.agent_graph import reachable


@dataclass(frozen=True, slots=True)
class Adoption:
    """How an agent becomes one of the service's. All three give back what they made as it is.

    `observe_tool` answers with a copy: a tool may be shared with code that is not ours. The SDK's own
    `copy.copy` of a tool keeps its failure handler, time limit, approvals, guardrails and marks, and binds
    the handler to the copy.
    """

    observe_tool: Callable[[FunctionTool], FunctionTool]
    wrap_model: Callable[[Model], Model]
    supervise: Callable[[MCPServer], MCPServer]

    def register(self, agent: Agent[Any]) -> None:
        """Adopt an agent for good, with all it leads to."""
        for each in reachable(agent):
            self._observe(each)
            servers = [self.supervise(server) for server in each.mcp_servers]
            if not _same(servers, each.mcp_servers):
                each.mcp_servers = servers

    def watch(self, agent: Agent[Any]) -> None:
        """Adopt an agent that was made during a turn: its MCP servers stay with whoever made it."""
        for each in reachable(agent):
            self._observe(each)

    def _observe(self, agent: Agent[Any]) -> None:
        tools = [self.observe_tool(tool) if isinstance(tool, FunctionTool) else tool for tool in agent.tools]
        # The SDK refuses new tools for an agent that several runs share: only what changes is assigned.
        if not _same(tools, agent.tools):
            agent.tools = tools
        if isinstance(agent.model, Model):
            agent.model = self.wrap_model(agent.model)


def _same(new: list[Any], old: list[Any]) -> bool:
    return len(new) == len(old) and all(a is b for a, b in zip(new, old, strict=True))
