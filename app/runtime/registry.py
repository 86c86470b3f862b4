"""The agents that callers can name: those that `TURNWIRE_AGENTS` lists, beside the built-in ones.

The name is always the agent's own, also in a dict: it is what events and histories show.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from agents import Agent, FunctionTool, Tool
from agents.tool import ToolOriginType, get_function_tool_origin

from app.domain.json_types import JsonObject
from app.errors import AgentNotFound
from app.runtime.adoption import Adoption
from app.runtime.agent_graph import reachable, reachable_by_handoff
from app.runtime.agent_loading import SETTING, Found, RegistryError, Runnable
from app.runtime.descriptions import describe, describe_workflow
from app.runtime.workflow import Workflow

FALLBACK_NAME = "assistant"
MAX_NAME_CHARS = 128


class Registry:
    """The agents by name. The first registered one is the default, else the built-in `assistant`.

    A registered agent wins over a built-in one of its name. Agents that can be reached by handoff have names
    too, for turns that go on with whoever spoke last: two of one name are a RegistryError.
    """

    def __init__(
        self,
        found: Sequence[Found],
        builtin: Sequence[Runnable],
        adoption: Adoption,
        *,
        default_model: str | None = None,
    ) -> None:
        self._adoption = adoption
        self._registered: dict[str, Runnable] = {}
        self._reachable: dict[str, Runnable] = {}
        self._add(self._checked(found))
        self._add([agent for agent in builtin if agent.name not in self._reachable])
        if not self._registered:
            raise RegistryError(f"{SETTING}: there is no agent to serve")
        self.default_name = self._default_name(found)
        # Described as they were made: what is adopted hides its model's name behind ours.
        self._descriptions = [_described(runnable, default_model) for runnable in self._default_first()]
        for runnable in self._registered.values():
            for agent in agents_of(runnable):
                adoption.register(agent)

    def _add(self, runnables: Sequence[Runnable]) -> None:
        for runnable in runnables:
            self._registered[runnable.name] = runnable
            for agent in agents_of(runnable):
                for each in reachable_by_handoff(agent):
                    self._reachable.setdefault(each.name, each)

    def _checked(self, found: Sequence[Found]) -> list[Runnable]:
        """What was found, each once; RegistryError if names do not tell them apart."""
        problems: list[str] = []
        sources: dict[str, Found] = {}
        for each in found:
            name, known = each.runnable.name, sources.get(each.runnable.name)
            if not name.strip() or len(name) > MAX_NAME_CHARS or name.startswith("@"):
                problems.append(
                    f"{SETTING}: {each.source!r}: {name[:MAX_NAME_CHARS]!r} is no name for an agent: "
                    f"1 to {MAX_NAME_CHARS} characters, no @ in front"
                )
            elif known is not None and known.runnable is not each.runnable:
                problems.append(_clash(name, known.source, each.source))
            else:
                sources[name] = each
        if not problems:
            problems = _handoff_clashes(sources)
        if problems:
            raise RegistryError("\n".join(problems))
        return [each.runnable for each in sources.values()]

    def _default_name(self, found: Sequence[Found]) -> str:
        if found:
            return found[0].runnable.name
        return FALLBACK_NAME if FALLBACK_NAME in self._registered else next(iter(self._registered))

    def _default_first(self) -> list[Runnable]:
        return sorted(self._registered.values(), key=lambda agent: agent.name != self.default_name)

    def is_registered(self, name: str) -> bool:
        """True for the names that a request may give."""
        return name in self._registered

    def get(self, name: str) -> Runnable:
        """The agent of that name: a registered one, or one that a registered one hands off to.

        Raises AgentNotFound.
        """
        agent = self._registered.get(name) or self._reachable.get(name)
        if agent is None:
            raise AgentNotFound(
                f"There is no agent {name!r}; there are {', '.join(sorted(self._registered))}.",
                errors=[{"loc": ["body", "agent"], "message": "no such agent"}],
            )
        return agent

    def descriptions(self) -> list[JsonObject]:
        """All registered agents as `GET /v1/agents` shows them, the default one first."""
        return self._descriptions

    def tool_schema(self, name: str, tool: str) -> JsonObject | None:
        """The parameters of a function tool anywhere in an agent's graph, nearest first; None if unknown."""
        for first in agents_of(self.get(name)):
            for agent in reachable(first):
                for known in agent.tools:
                    if isinstance(known, FunctionTool) and known.name == tool:
                        return known.params_json_schema
        return None

    def observe(self, tool: FunctionTool) -> FunctionTool:
        """A tool that is not an agent's own (a caller's), made one of the service's."""
        return self._adoption.observe_tool(tool)

    def observe_made(self, tools: Sequence[Tool]) -> None:
        """Tools that the SDK has made during a run, a sandbox's, as the service runs them.

        It runs the very objects that it offers to the model, so these are changed and not copied. Those of MCP
        servers are watched where they call the server.
        """
        for tool in tools:
            if isinstance(tool, FunctionTool) and not _is_of_mcp(tool):
                tool.on_invoke_tool = self.observe(tool).on_invoke_tool

    def adopt(self, agent: Agent[Any]) -> None:
        """Take in an agent that was made during a turn, before it runs. Cheap if it is known."""
        self._adoption.watch(agent)


def _is_of_mcp(tool: FunctionTool) -> bool:
    origin = get_function_tool_origin(tool)
    return origin is not None and origin.type is ToolOriginType.MCP


def agents_of(runnable: Runnable) -> list[Agent[Any]]:
    """The agents that runs of it may begin with."""
    return runnable.agents if isinstance(runnable, Workflow) else [runnable]


def _described(runnable: Runnable, default_model: str | None) -> JsonObject:
    if isinstance(runnable, Workflow):
        return describe_workflow(runnable, default_model)
    return describe(runnable, default_model)


def _handoff_clashes(sources: Mapping[str, Found]) -> list[str]:
    """Names that two agents share which can come to speak: nobody could tell which one spoke last."""
    problems: list[str] = []
    agents = {name: each for name, each in sources.items() if isinstance(each.runnable, Agent)}
    owners = {name: (agents_of(each.runnable)[0], each.source) for name, each in agents.items()}
    for each in agents.values():
        for agent in reachable_by_handoff(agents_of(each.runnable)[0]):
            known, source = owners.setdefault(agent.name, (agent, each.source))
            if known is not agent:
                problems.append(_clash(agent.name, source, each.source))
    return problems


def _clash(name: str, one: str, other: str) -> str:
    where = f"{one!r} and {other!r} each lead to" if one != other else f"{one!r} leads to"
    return f"{SETTING}: {where} another agent called {name!r}: names must be unique"
