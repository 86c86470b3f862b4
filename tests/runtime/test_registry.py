"""Finding the agents that the setting names, and naming them to callers."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, FunctionTool, function_tool

from app.builtin_agents import builtin_agents
from app.errors import AgentNotFound
from app.runtime.adoption import Adoption
from app.runtime.agent_loading import Found, RegistryError, load
from app.runtime.registry import Registry

pytestmark = pytest.mark.anyio

HEAD = "from agents import Agent, function_tool\n"
Write = Callable[[str, str], str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a module into the current folder, which is a new one; gives back its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)

    def module(name: str, code: str) -> str:
        path = tmp_path / (name.replace(".", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HEAD + code)
        return name

    yield module
    for name in set(sys.modules) - known:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


def adoption(noted: list[str] | None = None) -> Adoption:
    def observe(tool: FunctionTool) -> FunctionTool:
        if noted is not None:
            noted.append(tool.name)
        return tool

    return Adoption(observe, lambda model: model, lambda server: server)


def registry(*agents: Agent[Any], builtin: list[Agent[Any]] | None = None, **options: Any) -> Registry:
    found = [Found(agent, f"m:{i}") for i, agent in enumerate(agents)]
    return Registry(found, builtin_agents() if builtin is None else builtin, adoption(), **options)


async def names(*specs: str) -> list[str]:
    return [found.runnable.name for found in await load(specs)]


async def refusal(*specs: str) -> str:
    with pytest.raises(RegistryError) as caught:
        await load(specs)
    return str(caught.value)


# --- finding ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("it = Agent(name='one')", ["one"]),
        ("it = [Agent(name='one'), Agent(name='two')]", ["one", "two"]),
        ("it = (Agent(name='one'),)", ["one"]),
        ("it = {'x': Agent(name='one'), 'y': Agent(name='two')}", ["one", "two"]),
        ("def it(): return Agent(name='made')", ["made"]),
        ("async def it(): return [Agent(name='made')]", ["made"]),
        ("def it(name='default'): return Agent(name=name)", ["default"]),
        ("class Desk(Agent): pass\nit = Desk(name='sub')", ["sub"]),
    ],
)
async def test_an_attribute_may_be_an_agent_several_or_a_function(
    code: str, expected: list[str], write: Write
) -> None:
    assert await names(f"{write('desk', code)}:it") == expected


async def test_modules_of_packages_and_attributes_of_attributes_are_found(write: Write) -> None:
    write("pack.desk", "class All:\n    one = Agent(name='one')")
    assert await names("pack.desk:All.one") == ["one"]


async def test_several_parts_keep_their_order(write: Write) -> None:
    write("desk", "one = Agent(name='one')\ntwo = Agent(name='two')")
    assert await names("desk:two", "desk:one") == ["two", "one"]


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("desk", "not module:attribute"),
        (":it", "not module:attribute"),
        ("desk:", "not module:attribute"),
        ("nowhere:it", "no module 'nowhere' in the current folder or on PYTHONPATH"),
        ("desk.sub:it", "no module 'desk.sub'"),
        ("desk:gone", "'desk' has no attribute 'gone' (its agents: one, two)"),
        ("desk:number", "'number' is of type int, expected an Agent"),
        ("desk:none", "'none' is None, expected an Agent"),
        ("desk:empty", "'empty' is an empty list"),
        ("desk:mixed", "'mixed' holds of type str"),
        ("desk:needy", "a function that needs arguments"),
        ("desk:breaks", "calling 'breaks' failed: ValueError: no database"),
        ("desk:gives_none", "'gives_none' is None"),
        ("desk:Desk", "'Desk' is the class Desk"),
        ("desk:tool", "'tool' is of type FunctionTool"),
        ("agents:it", "'agents' is the SDK's import name"),
        ("app.desk:it", "'app' is this service's import name"),
    ],
)
async def test_a_part_that_leads_nowhere_is_told_with_what_was_found(
    spec: str, told: str, write: Write
) -> None:
    write(
        "desk",
        "one = Agent(name='one')\ntwo = Agent(name='two')\nnumber = 3\nnone = None\nempty = []\n"
        "mixed = [one, 'x']\ntool = function_tool(lambda: 'x', name_override='t')\n"
        "class Desk: pass\n"
        "def needy(x): return one\ndef breaks(): raise ValueError('no database')\ndef gives_none(): pass\n",
    )
    message = await refusal(spec)
    assert message.startswith(f"TURNWIRE_AGENTS: {spec!r}: ")
    assert told in message


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("raise RuntimeError('no key\\nin the environment')", "RuntimeError: no key"),
        ("import not_installed_at_all", "No module named 'not_installed_at_all'"),
        ("def x(:", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
async def test_a_module_that_does_not_import_is_told_by_its_error(code: str, told: str, write: Write) -> None:
    message = await refusal(f"{write('broken', code)}:it")
    assert "importing 'broken' failed" in message
    assert told in message


async def test_all_parts_that_are_wrong_are_told(write: Write) -> None:
    write("desk", "one = Agent(name='one')")
    assert len((await refusal("nowhere:a", "desk:one", "desk:b")).splitlines()) == 2


# --- naming -------------------------------------------------------------------------------------


def test_without_agents_of_its_own_a_service_has_the_assistant() -> None:
    served = registry()
    assert served.default_name == "assistant"
    assert served.get("assistant").name == "assistant"
    assert [d["name"] for d in served.descriptions()] == ["assistant", "postcards"]
    assert served.descriptions()[0]["examples"]


def test_the_first_registered_agent_is_the_default_and_is_shown_first() -> None:
    served = registry(Agent(name="desk"), Agent(name="alpha"), default_model="m")
    assert served.default_name == "desk"
    assert [d["name"] for d in served.descriptions()] == ["desk", "alpha", "assistant", "postcards"]
    assert served.descriptions()[0]["model"] == "m"


def test_a_registered_agent_wins_over_a_builtin_one_of_its_name() -> None:
    mine = Agent[Any](name="assistant")
    served = registry(Agent(name="desk"), mine)
    assert served.get("assistant") is mine
    assert [d["name"] for d in served.descriptions()] == ["desk", "assistant", "postcards"]


def test_an_unknown_agent_is_not_found_and_the_known_ones_are_named() -> None:
    with pytest.raises(AgentNotFound) as caught:
        registry(Agent(name="desk")).get("dusk")
    assert "'dusk'" in caught.value.detail
    assert "assistant, desk" in caught.value.detail
    assert caught.value.errors == [{"loc": ["body", "agent"], "message": "no such agent"}]


def test_an_agent_that_is_reached_by_handoff_is_found_but_not_registered() -> None:
    billing = Agent[Any](name="billing")
    served = registry(Agent(name="desk", handoffs=[billing]))
    assert served.get("billing") is billing
    assert not served.is_registered("billing")
    assert served.is_registered("desk")
    assert "billing" not in [d["name"] for d in served.descriptions()]


def test_the_same_agent_may_be_named_twice() -> None:
    desk = Agent[Any](name="desk")
    assert [d["name"] for d in registry(desk, desk, builtin=[]).descriptions()] == ["desk"]


@pytest.mark.parametrize(
    "agents",
    [
        [Agent(name="desk"), Agent(name="desk")],
        [Agent(name="desk", handoffs=[Agent(name="x"), Agent(name="x")])],
        [Agent(name="desk", handoffs=[Agent(name="x")]), Agent(name="x")],
        [Agent(name="a", handoffs=[Agent(name="x")]), Agent(name="b", handoffs=[Agent(name="x")])],
        [Agent(name="desk", handoffs=[Agent(name="desk")])],
    ],
)
def test_two_agents_of_one_name_that_could_both_speak_are_refused(agents: list[Agent[Any]]) -> None:
    with pytest.raises(RegistryError, match=r"TURNWIRE_AGENTS: 'm:.*another agent called '(desk|x)'"):
        registry(*agents)


def test_nested_agents_may_share_a_name() -> None:
    tools = [Agent(name="x").as_tool(f"t{i}", "d") for i in range(2)]
    assert registry(Agent(name="desk", tools=[*tools])).get("desk")


@pytest.mark.parametrize("name", ["", "  ", "@last", "x" * 129])
def test_a_name_that_a_request_cannot_give_is_refused(name: str) -> None:
    with pytest.raises(RegistryError, match="no name for an agent"):
        registry(Agent(name=name))


def test_a_service_without_any_agent_is_refused() -> None:
    with pytest.raises(RegistryError):
        registry(builtin=[])


def test_a_tools_schema_is_found_anywhere_in_the_graph() -> None:
    @function_tool
    def look_up(key: str) -> str:
        """Looks up."""
        return key

    expert = Agent[Any](name="expert", tools=[look_up])
    served = registry(Agent(name="desk", tools=[expert.as_tool("ask", "Asks.")]))
    assert served.tool_schema("desk", "look_up") == look_up.params_json_schema
    assert served.tool_schema("desk", "ask") is not None
    assert served.tool_schema("desk", "nothing") is None


def test_registered_agents_their_helpers_and_late_ones_are_adopted() -> None:
    @function_tool
    def look_up(key: str) -> str:
        """Looks up."""
        return key

    noted: list[str] = []
    expert = Agent[Any](name="expert", tools=[look_up])
    desk = Agent[Any](name="desk", tools=[expert.as_tool("ask", "Asks.")])
    served = Registry([Found(desk, "m:desk")], [], adoption(noted))
    assert noted == ["ask", "look_up"]
    served.adopt(expert)
    served.observe(look_up)
    assert noted == ["ask", "look_up", "look_up", "look_up"]
