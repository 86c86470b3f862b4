"""The agents that a turn can reach from its first one.

An agent leads to others by handoffs, as agents or as `Handoff` objects, and by tools that run an agent. The
target of a `Handoff` and the agent behind a tool are private attributes of the SDK, which looks at them the
same way: the version is pinned, and one that is gone or unset leads nowhere.
"""

from collections.abc import Callable, Iterator
from typing import Any

from agents import Agent, Handoff
from agents.sandbox import SandboxAgent


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
    targets = [
        handoff_target(handoff) if isinstance(handoff, Handoff) else handoff for handoff in agent.handoffs
    ]
    return [target for target in targets if isinstance(target, Agent)]


def handoff_target(handoff: Handoff[Any, Any]) -> Agent[Any] | None:
    """The agent that a handoff leads to, None if that shows only when it is made."""
    reference = getattr(handoff, "_agent_ref", None)
    target = reference() if callable(reference) else None
    return target if isinstance(target, Agent) else None


def _agents_behind_tools(agent: Agent[Any]) -> list[Agent[Any]]:
    behind = [getattr(tool, "_agent_instance", None) for tool in agent.tools]
    return [nested for nested in behind if isinstance(nested, Agent)]
