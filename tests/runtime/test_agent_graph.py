"""What an agent leads to, and what the service adds on the way."""

from dataclasses import replace
from typing import Any

import pytest
from agents import (
    Agent,
    FunctionTool,
    HostedMCPTool,
    Model,
    RunConfig,
    Runner,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrailData,
    WebSearchTool,
    function_tool,
    handoff,
    tool_input_guardrail,
)
from agents.mcp import MCPServer, MCPServerStdio, MCPServerStdioParams
from agents.testing import ScriptedModel, assistant_message, function_call
from agents.tool_context import ToolContext
from anyio import fail_after

from app.runtime.adoption import Adoption
from app.runtime.agent_graph import reachable, reachable_by_handoff
from app.runtime.descriptions import describe
from app.runtime.mcp import MCPServers
from tests.bounds import BOUND_S

pytestmark = pytest.mark.anyio


class Observed:
    """Stands where a tool's invoker stood and notes each call."""

    calls: list[str]

    def __init__(self, tool: FunctionTool, calls: list[str]) -> None:
        self._name, self._original, self.calls = tool.name, tool.on_invoke_tool, calls

    async def __call__(self, context: ToolContext[Any], arguments: str) -> Any:
        self.calls.append(self._name)
        return await self._original(context, arguments)


class Wrapped(ScriptedModel):
    pass


class Added:
    """An adoption that notes what went through it."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.servers = MCPServers()
        self.adoption = Adoption(self.observe, self.wrap, self.servers.supervised)

    def observe(self, tool: FunctionTool) -> FunctionTool:
        if isinstance(tool.on_invoke_tool, Observed):
            return tool
        copied = replace(tool)
        copied.on_invoke_tool = Observed(copied, self.calls)
        return copied

    def wrap(self, model: Model) -> Model:
        return model if isinstance(model, Wrapped) else Wrapped([])


@function_tool
def look_up(key: str) -> str:
    """Looks a key up."""
    return f"value of {key}"


def mcp_server(**options: Any) -> MCPServer:
    return MCPServerStdio(MCPServerStdioParams(command="true"), **options)


def names(agents: Any) -> list[str]:
    return [agent.name for agent in agents]


def a_graph() -> Agent[Any]:
    """front → billing (a plain handoff) → front again; front → refunds (a Handoff); front runs expert."""
    expert = Agent[Any](name="expert", tools=[look_up])
    refunds = Agent[Any](name="refunds", tools=[expert.as_tool("ask", "Asks the expert.")])
    billing = Agent[Any](name="billing", tools=[look_up, WebSearchTool()])
    front = Agent[Any](name="front", tools=[look_up], handoffs=[billing, handoff(refunds)])
    billing.handoffs = [front]
    _KEPT.append(refunds)
    return front


_KEPT: list[Agent[Any]] = []


def test_the_graph_leads_over_handoffs_and_tools_and_ends_in_spite_of_cycles() -> None:
    front = a_graph()
    assert names(reachable(front)) == ["front", "billing", "refunds", "expert"]
    assert names(reachable_by_handoff(front)) == ["front", "billing", "refunds"]


def test_every_function_tool_of_the_graph_is_observed_once() -> None:
    front, added = a_graph(), Added()
    added.adoption.register(front)
    tools = {agent.name: list(agent.tools) for agent in reachable(front)}
    assert all(
        isinstance(tool.on_invoke_tool, Observed)
        for each in tools.values()
        for tool in each
        if isinstance(tool, FunctionTool)
    )
    assert isinstance(tools["billing"][1], WebSearchTool)
    before = {agent.name: agent.tools for agent in reachable(front)}
    added.adoption.register(front)
    added.adoption.watch(front)
    assert all(agent.tools is before[agent.name] for agent in reachable(front))


def test_the_tool_itself_is_left_as_it_was() -> None:
    Added().adoption.register(Agent[Any](name="a", tools=[look_up]))
    assert not isinstance(look_up.on_invoke_tool, Observed)


def test_an_agents_own_model_is_wrapped_and_a_name_is_left() -> None:
    added = Added()
    own, named = Agent[Any](name="own", model=ScriptedModel([])), Agent[Any](name="named", model="m")
    own.handoffs = [named]
    added.adoption.register(own)
    assert isinstance(own.model, Wrapped)
    assert named.model == "m"


def test_mcp_servers_are_supervised_only_for_registered_agents() -> None:
    added, shared = Added(), mcp_server()
    one, other = Agent[Any](name="one", mcp_servers=[shared]), Agent[Any](name="other", mcp_servers=[shared])
    one.handoffs = [other]
    added.adoption.watch(one)
    assert one.mcp_servers == [shared]
    added.adoption.register(one)
    assert one.mcp_servers[0] is other.mcp_servers[0]
    assert one.mcp_servers[0] is not shared
    assert len(list(added.servers)) == 1


async def run(agent: Agent[Any]) -> Any:
    with fail_after(BOUND_S):
        return await Runner.run(agent, "go", run_config=RunConfig(tracing_disabled=True))


async def test_observed_tools_of_nested_agents_run_too() -> None:
    added = Added()
    inner = ScriptedModel(
        [[function_call("look_up", {"key": "a"}, call_id="c2")], [assistant_message("inner")]]
    )
    outer = ScriptedModel([[function_call("ask", {"input": "a?"}, call_id="c1")], [assistant_message("outer")]])
    expert = Agent[Any](name="expert", tools=[look_up], model=inner)
    front = Agent[Any](name="front", tools=[expert.as_tool("ask", "Asks.")], model=outer)
    adoption = Adoption(added.observe, lambda model: model, added.servers.supervised)
    adoption.register(front)
    assert (await run(front)).final_output == "outer"
    assert added.calls == ["ask", "look_up"]


async def test_an_observed_tool_keeps_its_failure_handler_time_limit_approval_and_guardrails() -> None:
    guarded: list[str] = []

    @tool_input_guardrail
    def guard(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        guarded.append(data.context.tool_name)
        return ToolGuardrailFunctionOutput.allow()

    @function_tool(
        failure_error_function=lambda context, error: f"handled: {error}",
        timeout=3.5,
        needs_approval=False,
        tool_input_guardrails=[guard],
    )
    async def breaks() -> str:
        """Breaks."""
        raise ValueError("it broke")

    @function_tool(needs_approval=True)
    def asks() -> str:
        """Asks first."""
        return "done"

    model = ScriptedModel(
        [[function_call("breaks", {}, call_id="c1"), function_call("asks", {}, call_id="c2")]]
    )
    agent = Agent[Any](name="a", tools=[breaks, asks], model=model)
    added = Added()
    Adoption(added.observe, lambda model: model, added.servers.supervised).register(agent)
    result = await run(agent)
    assert "handled: it broke" in str(result.to_input_list())
    assert [item.name for item in result.interruptions] == ["asks"]
    assert guarded == ["breaks"]
    [adopted, _] = agent.tools
    assert isinstance(adopted, FunctionTool)
    assert adopted.timeout_seconds == 3.5


# --- what callers are told ----------------------------------------------------------------------


def test_an_agent_is_described_by_what_it_says_of_itself() -> None:
    front = a_graph()
    front.handoff_description = "Takes all questions."
    front.examples = ["Where is my refund?", {"case": 1}]
    assert describe(front, "some-model") == {
        "name": "front",
        "description": "Takes all questions.",
        "model": "some-model",
        "tools": [
            {
                "name": "look_up",
                "description": "Looks a key up.",
                "parameters": look_up.params_json_schema,
                "needs_approval": False,
            }
        ],
        "handoffs": ["billing", "refunds"],
        "may_pause": False,
        "examples": ["Where is my refund?", {"case": 1}],
    }


def test_a_description_falls_back_to_the_first_line_of_the_instructions() -> None:
    assert describe(Agent(name="a", instructions="\nHelps.\nIn detail."))["description"] == "Helps."
    assert describe(Agent(name="a", instructions=lambda context, agent: "made"))["description"] is None
    assert describe(Agent(name="a"))["description"] is None


def test_the_model_is_the_agents_own_or_the_services() -> None:
    assert describe(Agent(name="a", model="own"), "default")["model"] == "own"
    assert describe(Agent(name="a", model=ScriptedModel([])), "default")["model"] is None
    assert describe(Agent(name="a"))["model"] is None


def test_a_hosted_tool_is_shown_without_parameters_and_a_disabled_one_not_at_all() -> None:
    hidden = replace(look_up, is_enabled=False)
    [shown] = describe(Agent(name="a", tools=[WebSearchTool(), hidden]))["tools"]
    assert shown == {"name": "web_search", "description": None, "parameters": None, "needs_approval": False}


async def sometimes(context: Any, arguments: Any, call_id: str) -> bool:
    return False


def hosted(require_approval: Any = None) -> HostedMCPTool:
    policy: dict[str, Any] = {"require_approval": require_approval} if require_approval else {}
    config: Any = {"type": "mcp", "server_label": "s", "server_url": "https://s", **policy}
    return HostedMCPTool(tool_config=config)


@pytest.mark.parametrize(
    ("agent", "may"),
    [
        (Agent(name="a", tools=[replace(look_up, needs_approval=True)]), True),
        (Agent(name="a", tools=[replace(look_up, needs_approval=sometimes)]), True),
        (Agent(name="a", tools=[look_up]), False),
        (Agent(name="a", mcp_servers=[mcp_server(require_approval="always")]), True),
        (Agent(name="a", mcp_servers=[mcp_server(require_approval={"x": "always"})]), True),
        (Agent(name="a", mcp_servers=[mcp_server(require_approval={"x": "never"})]), False),
        (Agent(name="a", mcp_servers=[mcp_server()]), False),
        (Agent(name="a", tools=[hosted()]), True),
        (Agent(name="a", tools=[hosted(require_approval="never")]), False),
    ],
)
def test_an_agent_may_pause_if_a_tool_anywhere_in_its_graph_may_need_approval(
    agent: Agent[Any], may: bool
) -> None:
    assert describe(agent)["may_pause"] is may
    assert describe(Agent(name="b", handoffs=[agent]))["may_pause"] is may
    assert describe(Agent(name="b", tools=[agent.as_tool("t", "d")]))["may_pause"] is may


def test_a_supervised_server_still_tells_that_it_may_pause() -> None:
    agent = Agent[Any](name="a", mcp_servers=[mcp_server(require_approval="always")])
    Added().adoption.register(agent)
    assert describe(agent)["may_pause"] is True
