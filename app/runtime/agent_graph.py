"""The agents that a turn can reach from its first one, and what the service adds to each of them.

An agent leads to others by handoffs, as agents or as `Handoff` objects, and by tools that run an agent. The
target of a `Handoff` and the agent behind a tool are private attributes of the SDK, which looks at them the
same way: the version is pinned, and one that is gone or unset leads nowhere.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from agents import Agent, FunctionTool, Handoff, HostedMCPTool, Model, Tool
from agents.mcp import MCPServer
from agents.sandbox import SandboxAgent

from app.domain.json_types import JsonObject
from app.runtime.outputs import plain_json
from app.runtime.workflow import Workflow


def reachable(agent: Agent[Any]) -> Iterator[Agent[Any]]:
    """Each agent of the graph once, `agent` first, nearer ones before farther ones."""
    return _walk(agent, lambda each: [*handoff_targets(each), *_agents_behind_tools(each)])


def works_in_sandbox(agent: Agent[Any]) -> bool:
    """True if one of the agents that it leads to does."""
    return any(isinstance(each, SandboxAgent) for each in reachable(agent))


def reachable_by_handoff(agent: Agent[Any]) -> Iterator[Agent[Any]]:
    """The agents that can come to speak for a turn that begins with `agent`."""
    return _walk(agent, handoff_targets)


def names_in_use(agent: Agent[Any]) -> set[str]:
    """The names by which models call tools and handoffs, of each agent that can come to speak for a turn."""
    agents = list(reachable_by_handoff(agent))
    tools = {tool.name for each in agents for tool in each.tools}
    return tools | {_handoff_tool(handoff) for each in agents for handoff in each.handoffs}


def _handoff_tool(handoff: Agent[Any] | Handoff[Any, Any]) -> str:
    return handoff.tool_name if isinstance(handoff, Handoff) else Handoff.default_tool_name(handoff)


def _walk(agent: Agent[Any], neighbours: Callable[[Agent[Any]], list[Agent[Any]]]) -> Iterator[Agent[Any]]:
    queue = [agent]
    seen = {id(agent)}
    while queue:
        current = queue.pop(0)
        yield current
        for following in neighbours(current):
            if id(following) not in seen:
                seen.add(id(following))
                queue.append(following)


def handoff_targets(agent: Agent[Any]) -> list[Agent[Any]]:
    targets = [_target(handoff) if isinstance(handoff, Handoff) else handoff for handoff in agent.handoffs]
    return [target for target in targets if isinstance(target, Agent)]


def _target(handoff: Handoff[Any, Any]) -> object:
    reference = getattr(handoff, "_agent_ref", None)
    return reference() if callable(reference) else None


def _agents_behind_tools(agent: Agent[Any]) -> list[Agent[Any]]:
    behind = [getattr(tool, "_agent_instance", None) for tool in agent.tools]
    return [nested for nested in behind if isinstance(nested, Agent)]


# --- what the service adds ----------------------------------------------------------------------


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


# --- what callers are told ----------------------------------------------------------------------


def describe_workflow(workflow: Workflow, default_model: str | None = None) -> JsonObject:
    """A workflow as `GET /v1/agents` shows it: by what it says of itself, and the first of its agents."""
    first = describe(workflow.agents[0], default_model)
    return first | {
        "name": workflow.name,
        "description": workflow.description or first["description"],
        "may_pause": any(_may_pause(each) for agent in workflow.agents for each in reachable(agent)),
        "examples": list(workflow.examples),
    }


def describe(agent: Agent[Any], default_model: str | None = None) -> JsonObject:
    """An agent as `GET /v1/agents` shows it. `examples` are inputs, taken from an attribute of that name.

    `tools` are those that it has of itself; those of MCP servers are known only while it runs.
    """
    return {
        "name": agent.name,
        "description": _description(agent),
        "model": _model_name(agent, default_model),
        "tools": [
            _described_tool(tool) for tool in agent.tools if getattr(tool, "is_enabled", True) is not False
        ],
        "handoffs": [_handoff_name(handoff) for handoff in agent.handoffs],
        "may_pause": any(_may_pause(each) for each in reachable(agent)),
        "examples": _examples(agent),
    }


def _description(agent: Agent[Any]) -> str | None:
    if agent.handoff_description:
        return agent.handoff_description
    if isinstance(agent.instructions, str) and agent.instructions.strip():
        return agent.instructions.strip().splitlines()[0]
    return None


def _model_name(agent: Agent[Any], default_model: str | None) -> str | None:
    if isinstance(agent.model, Model):
        name = getattr(agent.model, "model", None)
        return name if isinstance(name, str) else None
    return agent.model or default_model


def _described_tool(tool: Tool) -> JsonObject:
    return {
        "name": tool.name,
        "description": getattr(tool, "description", None) or None,
        "parameters": tool.params_json_schema if isinstance(tool, FunctionTool) else None,
        "needs_approval": _tool_may_pause(tool),
    }


def _handoff_name(handoff: Agent[Any] | Handoff[Any, Any]) -> str:
    return handoff.agent_name if isinstance(handoff, Handoff) else handoff.name


def _may_pause(agent: Agent[Any]) -> bool:
    servers_may = any(_server_may_pause(server) for server in agent.mcp_servers)
    return servers_may or any(_tool_may_pause(tool) for tool in agent.tools)


def _tool_may_pause(tool: Tool) -> bool:
    """True also for a tool that decides call by call."""
    if isinstance(tool, HostedMCPTool):
        policy = tool.tool_config.get("require_approval", "always")  # the provider's default
        return tool.on_approval_request is None and policy != "never"
    return bool(getattr(tool, "needs_approval", False))


def _server_may_pause(server: MCPServer) -> bool:
    policy = getattr(server, "_needs_approval_policy", False)
    return any(policy.values()) if isinstance(policy, dict) else bool(policy)


def _examples(agent: Agent[Any]) -> list[Any]:
    examples = getattr(agent, "examples", None)
    return [plain_json(example) for example in examples] if isinstance(examples, list | tuple) else []
