"""What callers are told of an agent or a workflow (`GET /v1/agents`)."""

from typing import Any

from agents import Agent, FunctionTool, Handoff, HostedMCPTool, Model, Tool
from agents.mcp import MCPServer

from app.domain.json_types import JsonObject
from app.runtime.agent_graph import reachable
from app.runtime.outputs import plain_json
from app.runtime.workflow import Workflow


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
