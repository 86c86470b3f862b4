"""The history goes into the SDK as one entry, and nobody can tell: not the provider, not tools, not hooks."""

import gc
from collections.abc import Sequence
from typing import Any, cast

import pytest
from agents import (
    Agent,
    AgentHooks,
    GuardrailFunctionOutput,
    Handoff,
    HandoffInputData,
    RunConfig,
    RunContextWrapper,
    RunHooks,
    Tool,
    function_tool,
    handoff,
    input_guardrail,
)
from agents.testing import ScriptedModel, assistant_message

from app.domain.conversation import StoredItem
from app.domain.json_types import Item
from app.domain.pause import Answers, Decision
from app.domain.ports import RunCompleted, RunPaused
from app.runtime.models.foreign import tapped
from app.runtime.models.transport import Wire
from app.runtime.onlookers import has_onlookers
from tests.runtime.models.loopback import Answer, Loopback, chunk, completed_event, frames, text_answer
from tests.runtime.one_turn import Bench, Told, bench, dialogue, plain, sent

pytestmark = pytest.mark.anyio
WIRES = ("responses", "chat_completions")
USER: Item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "What is kelp?"}]}
SAID: Item = {
    "type": "message",
    "role": "assistant",
    "id": "msg_said",
    "status": "completed",
    "content": [{"type": "output_text", "text": "It is green.", "annotations": []}],
}
THOUGHT: Item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "secret"}
MARKED: Item = {
    "type": "reasoning",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "Hm."}],
    "provider_data": {"upstream": "loop", "field": "reasoning_content"},
}
IMAGE: Item = {"type": "input_image", "image_url": "https://example.org/kelp.png", "detail": "auto"}


def call(call_id: str, name: str = "lookup", arguments: str = '{"q":"kelp"}') -> Item:
    return {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": name} | {
        "arguments": arguments,
        "status": "completed",
    }


def output(call_id: str, said: Any = "found") -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": said}


def says(wire: Wire, text: str = "Hi.") -> Answer:
    message = SAID | {"id": "msg_new", "content": [{"type": "output_text", "text": text, "annotations": []}]}
    return text_answer(text) if wire == "chat_completions" else Answer(frames(completed_event([message])))


def calls(wire: Wire, call_id: str = "call_new", name: str = "lookup") -> Answer:
    if wire == "responses":
        return Answer(frames(completed_event([call(call_id, name)])))
    entry = {"index": 0, "id": call_id, "function": {"name": name, "arguments": '{"q":"kelp"}'}}
    return Answer(frames(chunk({"tool_calls": [entry]}), chunk(finish="tool_calls"), done=True))


@function_tool
def lookup(q: str) -> str:
    """Look something up."""
    return f"{q}: found"


class Curious(AgentHooks[Any]):
    """Looks at what goes to the model."""

    def __init__(self) -> None:
        self.seen: list[list[Any]] = []

    async def on_llm_start(
        self, context: Any, agent: Agent[Any], system_prompt: str | None, input_items: list[Any]
    ) -> None:
        self.seen.append(list(input_items))


HISTORIES = {
    "talk": dialogue(6),
    "text as a string": [USER | {"content": "Hello"}, SAID | {"content": "Hi."}],
    "a part that says nothing": [USER | {"content": [{"type": "input_text", "text": ""}]}, SAID],
    "annotations": [
        USER,
        SAID
        | {"content": [{"type": "output_text", "text": "See.", "annotations": [{"type": "url_citation"}]}]},
    ],
    "a refusal": [USER, SAID | {"content": [{"type": "refusal", "refusal": "No."}]}],
    "calls": [USER, SAID, call("c1"), call("c2"), output("c1"), output("c2"), SAID],
    "a call without output": [USER, call("c1"), SAID],
    "an output without call": [USER, output("c9"), SAID],
    "arguments that are no object": [USER, call("c1", arguments="[1]"), output("c1"), SAID],
    "a name that nobody takes": [USER, call("c1", name="look it up"), output("c1"), SAID],
    "a name that a tool has": [USER, call("c1", name="lookup"), output("c1")],
    "images from a tool": [USER, call("c1"), output("c1", [IMAGE]), SAID],
    "images last": [USER, call("c1"), output("c1", [IMAGE])],
    "reasoning": [USER, THOUGHT, SAID],
    "reasoning of the other wire": [USER, MARKED, call("c1"), output("c1"), SAID],
    "reasoning last": [USER, SAID, THOUGHT],
    "a user last": [USER, SAID, USER],
    "a hosted tool": [USER, {"type": "web_search_call", "id": "ws_1", "status": "completed"}, SAID],
    "who made it": [USER, {"type": "web_search_call", "id": "ws_1", "created_by": "me"}, SAID],
    "a long id": [USER, SAID | {"id": "msg_" + "x" * 90}],
    "system": [{"type": "message", "role": "system", "content": [{"type": "input_text", "text": "Be."}]}, USER],
}
INPUTS: dict[str, Any] = {
    "text": "And moss?",
    "the assistant first": [
        {"role": "assistant", "content": "Well."},
        {"role": "user", "content": "And moss?"},
    ],
    "the assistant alone": [{"role": "assistant", "content": "Well."}],
    "the system first": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "And moss?"}],
}


async def requests(
    wire: Wire, history: Sequence[Item], said: Any, origin: str | None, *, curious: bool
) -> list[dict[str, Any]]:
    """What the upstream is sent in a turn of two steps."""
    agent = plain(tools=[lookup], hooks=Curious() if curious else None)
    async with Loopback(calls(wire), says(wire)) as server, bench(server.url, agent, wire=wire) as turns:
        outcome, _ = await turns.run(history, said, origin=origin)
    assert outcome == RunCompleted("Hi.", None)
    assert len(server.requests) == 2
    return [request.body for request in server.requests]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("origin", [None, "loop", "another"])
@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
async def test_the_provider_is_sent_the_same(history: list[Item], origin: str | None, wire: Wire) -> None:
    for said in INPUTS.values():
        whole = await requests(wire, history, said, origin, curious=True)
        assert await requests(wire, history, said, origin, curious=False) == whole


@pytest.mark.parametrize("limit", range(1, 5))
async def test_the_provider_is_sent_the_same_of_a_history_that_is_cut(limit: int) -> None:
    ran = {"type": "shell_call", "id": "sh_1", "call_id": "s1", "action": {"commands": ["ls"]}}
    listed = {"type": "shell_call_output", "call_id": "s1", "output": []}
    bodies = []
    for hooks in (None, Curious()):
        async with (
            Loopback(says("responses")) as server,
            bench(server.url, plain(hooks=hooks), history_items=limit) as turns,
        ):
            await turns.run([USER, ran, listed, SAID])
        bodies.append(sent(server))
    assert bodies[0] == bodies[1]


@pytest.mark.parametrize("wire", WIRES)
async def test_history_keeps_the_same(wire: Wire) -> None:
    kept = []
    for hooks in (None, Curious()):
        agent = plain(tools=[lookup], hooks=hooks)
        async with Loopback(calls(wire), says(wire)) as server, bench(server.url, agent, wire=wire) as turns:
            _, told = await turns.run(dialogue(4))
        kept.append([{k: v for k, v in new.item.items() if k != "id"} for new in told.items])
    assert kept[0] == kept[1]
    assert [item["type"] for item in kept[0]] == ["function_call", "function_call_output", "message"]


# --- who sees the input -------------------------------------------------------------------------


async def test_tools_and_instructions_see_the_items() -> None:
    seen: dict[str, list[Any]] = {}

    @function_tool
    def look(context: RunContextWrapper[Any]) -> str:
        """Look at the input."""
        seen["tool"] = list(context.turn_input)
        return "seen"

    def instructions(context: RunContextWrapper[Any], agent: Agent[Any]) -> str:
        seen["instructions"] = list(context.turn_input)
        return "Be kind."

    async with (
        Loopback(calls("responses", name="look"), says("responses")) as server,
        bench(server.url, plain(tools=[look], instructions=instructions)) as turns,
    ):
        await turns.run(dialogue(4), "Go on.")
    whole = [*dialogue(4), USER | {"content": [{"type": "input_text", "text": "Go on."}]}]
    assert seen == {"tool": whole, "instructions": whole}


async def test_a_tool_that_changes_what_it_sees_changes_nothing_else() -> None:
    history = dialogue(4)

    @function_tool
    def meddle(context: RunContextWrapper[Any]) -> str:
        """Meddle."""
        for item in context.turn_input:
            cast(Item, item).clear()
        context.turn_input.clear()
        return "done"

    async with (
        Loopback(calls("responses", name="meddle"), says("responses")) as server,
        bench(server.url, plain(tools=[meddle])) as turns,
    ):
        await turns.run(history)
    before, after = sent(server)
    assert after[: len(before)] == before
    assert history == dialogue(4)


async def test_hooks_see_the_items() -> None:
    curious = Curious()
    async with Loopback(says("responses")) as server, bench(server.url, plain(hooks=curious)) as turns:
        await turns.run(dialogue(4))
    assert [item["role"] for item in curious.seen[0]] == ["user", "assistant"] * 2 + ["user"]


async def test_guardrails_see_the_items() -> None:
    seen: list[Any] = []

    @input_guardrail
    def look(context: Any, agent: Agent[Any], input: Any) -> GuardrailFunctionOutput:
        seen.extend(input)
        return GuardrailFunctionOutput(None, tripwire_triggered=False)

    async with (
        Loopback(says("responses")) as server,
        bench(server.url, plain(input_guardrails=[look])) as turns,
    ):
        await turns.run(dialogue(4))
    assert len(seen) == 5


async def test_a_handoffs_filter_sees_the_items_and_chooses() -> None:
    def newest(data: HandoffInputData) -> HandoffInputData:
        assert len(data.input_history) == 5
        return data.clone(input_history=data.input_history[-1:])

    other = Agent[Any](name="other")
    agent = plain(handoffs=[handoff(other, input_filter=newest)])
    async with (
        Loopback(calls("responses", name="transfer_to_other"), says("responses")) as server,
        bench(server.url, agent) as turns,
    ):
        await turns.run(dialogue(4))
    first, second = sent(server)
    assert (len(first), [item["type"] for item in second]) == (
        5,
        ["message", "function_call", "function_call_output"],
    )


async def test_who_is_handed_the_turn_gets_the_items() -> None:
    agent = plain(handoffs=[Agent[Any](name="other")])
    async with (
        Loopback(calls("responses", name="transfer_to_other"), says("responses")) as server,
        bench(server.url, agent) as turns,
    ):
        await turns.run(dialogue(4))
    first, second = sent(server)
    assert second[:5] == first


async def test_a_model_of_somebody_elses_gets_the_items() -> None:
    model = ScriptedModel([[assistant_message("Hi.")]])
    async with Loopback(says("responses")) as server, bench(server.url, plain(model=tapped(model))) as turns:
        outcome, _ = await turns.run(dialogue(4))
    assert outcome == RunCompleted("Hi.", None)
    asked: Any = model.calls[0].input
    assert [item["role"] for item in asked] == ["user", "assistant"] * 2 + ["user"]


class RunCurious(RunHooks[Any]):
    async def on_agent_start(self, context: Any, agent: Agent[Any]) -> None:
        """It is given the input."""


class Incurious(RunHooks[Any]):
    async def on_tool_start(self, context: Any, agent: Agent[Any], tool: Tool) -> None:
        """It is not."""


def filtered(data: Any) -> Any:
    return data


def built_by_hand() -> Handoff[Any, Any]:
    async def invoke(context: Any, arguments: str) -> Agent[Any]:
        return Agent(name="unknown", hooks=Curious())

    return Handoff("go", "Go.", {}, invoke, "unknown")


@pytest.mark.parametrize(
    ("agent", "config", "hooks", "context", "seen"),
    [
        (plain(), RunConfig(), None, None, False),
        (plain(), RunConfig(), Incurious(), {"mine": 1}, False),
        (plain(hooks=AgentHooks()), RunConfig(), None, None, False),
        (plain(handoffs=[Agent(name="a"), handoff(Agent(name="b"))]), RunConfig(), None, None, False),
        (plain(), RunConfig(), RunCurious(), None, True),
        (plain(hooks=Curious()), RunConfig(), None, None, True),
        (plain(handoffs=[Agent(name="a", hooks=Curious())]), RunConfig(), None, None, True),
        (plain(handoffs=[handoff(plain(), input_filter=filtered)]), RunConfig(), None, None, True),
        (plain(handoffs=[handoff(plain(), nest_handoff_history=True)]), RunConfig(), None, None, True),
        (plain(handoffs=[built_by_hand()]), RunConfig(), None, None, True),
        (plain(model=ScriptedModel([])), RunConfig(), None, None, True),
        (plain(), RunConfig(call_model_input_filter=filtered), None, None, True),
        (plain(), RunConfig(handoff_input_filter=filtered), None, None, True),
        (plain(), RunConfig(nest_handoff_history=True), None, None, True),
        (plain(), RunConfig(), None, RunContextWrapper(None), True),
    ],
)
def test_who_may_look_is_known(
    agent: Agent[Any], config: RunConfig, hooks: RunHooks[Any] | None, context: Any, seen: bool
) -> None:
    assert has_onlookers(agent, config, hooks, context) == seen


# --- pauses -------------------------------------------------------------------------------------


@function_tool(needs_approval=True)
def guarded(q: str) -> str:
    """Looks a word up, if a person approves."""
    return f"{q}: found"


async def approved(turns: Bench, history: Sequence[Item]) -> bytes:
    """Pause a turn for an approval, and go on with it; the state that it was paused with."""
    told = Told()
    outcome, _ = await turns.run(history, told=told)
    assert isinstance(outcome, RunPaused)
    decisions = [Decision(a.approval_id, "approve", call_id=a.call_id) for a in outcome.approvals]
    answers = Answers(decisions=tuple(decisions))
    ended, _ = await turns.run(history, told=told, paused=outcome.state, answers=answers)
    assert ended == RunCompleted("Hi.", None)
    return outcome.state


@pytest.mark.parametrize("wire", WIRES)
async def test_a_turn_goes_on_after_a_pause_with_the_same_items(wire: Wire) -> None:
    bodies = []
    for hooks in (None, Curious()):
        agent = plain(tools=[guarded], hooks=hooks)
        answers = (calls(wire, name="guarded"), says(wire))
        async with Loopback(*answers) as server, bench(server.url, agent, wire=wire) as turns:
            await approved(turns, dialogue(200))
        bodies.append(sent(server))
    assert bodies[0] == bodies[1]
    assert len(bodies[0][1]) == 203


async def test_a_paused_state_holds_no_history() -> None:
    sizes = []
    for count in (2, 2000):
        answers = (calls("responses", name="guarded"), says("responses"))
        async with Loopback(*answers) as server, bench(server.url, plain(tools=[guarded])) as turns:
            sizes.append(len(await approved(turns, dialogue(count))))
    assert sizes[1] < sizes[0] + 100


async def test_a_tool_sees_the_items_after_a_pause() -> None:
    seen: list[int] = []

    @function_tool(needs_approval=True)
    def look(context: RunContextWrapper[Any]) -> str:
        """Look at the input."""
        seen.append(len(context.turn_input))
        return "seen"

    answers = (calls("responses", name="look"), says("responses"))
    async with Loopback(*answers) as server, bench(server.url, plain(tools=[look])) as turns:
        await approved(turns, dialogue(4))
    assert seen == [5]


# --- the end ------------------------------------------------------------------------------------


async def test_the_history_goes_with_the_run_and_waits_for_no_collection() -> None:
    async with Loopback(says("responses")) as server, bench(server.url, plain()) as turns:
        await turns.run(dialogue(50))
        gc.collect()
        gc.disable()
        try:
            await turns.run(dialogue(50))
            server.requests.clear()
            left = [each for each in gc.get_objects() if isinstance(each, StoredItem) or _is_told(each)]
        finally:
            gc.enable()
    assert left == []


def _is_told(value: object) -> bool:
    return isinstance(value, dict) and "Question 48" in str(value.get("content"))
