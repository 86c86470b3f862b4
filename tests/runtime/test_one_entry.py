"""Whole conversations with the history as one entry of the SDK's input, and item by item: all is the same.

What upstreams are sent, what is told, what is stored, what agents' own code sees; on both wires, over pauses,
and when the service starts anew in each pause.
"""

import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pytest
from agents import (
    Agent,
    AgentHooks,
    FunctionToolResult,
    GuardrailFunctionOutput,
    RunContextWrapper,
    RunHooks,
    Runner,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrailData,
    ToolsToFinalOutputResult,
    function_tool,
    output_guardrail,
    tool_input_guardrail,
)
from pydantic import BaseModel

from app.domain.conversation import NewItem, StoredItem
from app.domain.ids import ItemId
from app.domain.json_types import Item
from app.domain.pause import Answers, Decision, ToolOutput
from app.domain.ports import RunJob, RunOutcome, RunPaused
from app.domain.turn import ClientTool, TurnRequest, now
from app.runtime import runner
from app.runtime.agent_loading import Runnable
from app.runtime.models.transport import Wire
from app.runtime.onlookers import has_onlookers
from app.runtime.workflow import Workflow, WorkflowRun, WorkflowTurn
from tests.runtime.models.loopback import Answer, Loopback, chunk, completed_event, frames
from tests.runtime.one_turn import Told, bench, dialogue, numbered
from tests.sample_turn import sample_turn

pytestmark = pytest.mark.anyio
WIRES = ("responses", "chat_completions")
MAX_RUNS = 9

Seen = list[Any]
Said = tuple[str, ...]
"""What a model says in a piece: `("text", text)`, `("thought", text)` or `("call", tool, arguments)`."""


@dataclass
class Scene:
    """`agents` are made anew for each start of the service; the first begins. `answers` are those of the model,
    in order; `decision` is what a person says to each call that asks."""

    agents: Callable[[Seen], list[Runnable]]
    answers: list[list[Said]]
    turns: list[Any] = field(default_factory=lambda: ["Go on.", "And now?"])
    request: dict[str, Any] = field(default_factory=dict)
    history: Sequence[Item] = tuple(dialogue(6))
    history_items: int = 0
    decision: dict[str, Any] = field(default_factory=lambda: {"decision": "approve"})


def text(said: str) -> Said:
    return "text", said


def call(tool: str, **arguments: Any) -> Said:
    return "call", tool, json.dumps(arguments)


def items_of(answer: list[Said], number: int) -> list[Item]:
    items: list[Item] = []
    for place, (kind, *rest) in enumerate(answer):
        name = f"{number}_{place}"
        match kind:
            case "text":
                part = {"type": "output_text", "text": rest[0], "annotations": []}
                items.append(
                    {
                        "type": "message",
                        "id": f"msg_{name}a",
                        "role": "assistant",
                        "status": "completed",
                        "content": [part],
                    }
                )
            case "thought":
                items.append(
                    {"type": "reasoning", "id": f"rs_{name}a", "summary": [], "encrypted_content": rest[0]}
                )
            case _:
                items.append(
                    {"type": "function_call", "id": f"fc_{name}a", "call_id": f"call_{name}a"}
                    | {"name": rest[0], "arguments": rest[1], "status": "completed"}
                )
    return items


def answered(wire: Wire, answer: list[Said], number: int) -> Answer:
    if wire == "responses":
        return Answer(frames(completed_event(items_of(answer, number))))
    chunks = []
    for place, (kind, *rest) in enumerate(answer):
        match kind:
            case "text":
                chunks.append(chunk({"content": rest[0]}))
            case "thought":
                chunks.append(chunk({"reasoning_content": rest[0]}))
            case _:
                entry = {"index": place, "id": f"call_{number}_{place}a"}
                entry["function"] = {"name": rest[0], "arguments": rest[1]}
                chunks.append(chunk({"tool_calls": [entry]}))
    return Answer(frames(*chunks, chunk(finish="stop"), done=True))


@dataclass
class Played:
    """All that can be seen of a conversation."""

    sent: list[Any] = field(default_factory=list)
    outcomes: list[Any] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)
    stored: list[Any] = field(default_factory=list)
    seen: Seen = field(default_factory=list)


async def played(scene: Scene, wire: Wire, *, restarts: bool) -> Played:
    shown = Played()
    history = [stored(NewItem(ItemId(f"item_{n}"), item)) for n, item in enumerate(scene.history)]
    answers = [answered(wire, answer, number) for number, answer in enumerate(scene.answers)]
    async with Loopback(*answers) as server:
        stage = Stage(scene, wire, server.url, shown.seen, restarts=restarts)
        for said in scene.turns:
            new, outcome, told = await stage.turn(history, said)
            shown.outcomes.append(plain(outcome))
            shown.events += [plain(event) for event in told.events]
            history += [stored(item) for item in new]
        await stage.close()
    shown.stored = [plain(each.item) for each in history]
    shown.sent = [(request.path, request.body) for request in server.requests]
    assert len(server.requests) == len(scene.answers)
    return shown


def stored(new: NewItem) -> StoredItem:
    return StoredItem(new.id, None, now(), superseded=False, item=new.item, origin=new.origin)


class Stage:
    """The service, for turns with their pauses; with `restarts` it starts anew in each."""

    def __init__(self, scene: Scene, wire: Wire, url: str, seen: Seen, *, restarts: bool) -> None:
        self._scene, self._wire, self._url, self._seen, self._restarts = scene, wire, url, seen, restarts
        self._open: Any = None

    async def _bench(self, *, anew: bool) -> Any:
        if anew:
            await self.close()
        if self._open is None:
            agents = self._scene.agents(self._seen)
            opened = bench(self._url, *agents, wire=self._wire, history_items=self._scene.history_items)
            self._open = opened, await opened.__aenter__()
        return self._open[1]

    async def close(self) -> None:
        if self._open is not None:
            await self._open[0].__aexit__(None, None, None)
            self._open = None

    async def turn(self, history: list[StoredItem], said: Any) -> tuple[list[NewItem], RunOutcome, Told]:
        told = Told()
        asked = TurnRequest(input=said, **self._scene.request)
        state: bytes | None = None
        answers = Answers()
        for run in range(1, MAX_RUNS):
            turns = await self._bench(anew=self._restarts and run > 1)
            prepared = numbered(turns.preparation.prepare(asked))
            job = RunJob(
                turn=sample_turn(agent=prepared.agent, model=prepared.model, request=asked),
                prepared=prepared,
                history=tuple(history),
                recorded=(*prepared.input_items, *told.items) if run > 1 else (),
                run=run,
                steps_before=run - 1,
                state=state,
                answers=answers,
            )
            outcome = await turns.runner.run(job, told, told, float("inf"))
            if not isinstance(outcome, RunPaused):
                return [*prepared.input_items, *told.items], outcome, told
            state, answers = outcome.state, self._answers(outcome)
        raise AssertionError("it never ends")

    def _answers(self, paused: RunPaused) -> Answers:
        decision = self._scene.decision
        return Answers(
            decisions=tuple(Decision(a.approval_id, call_id=a.call_id, **decision) for a in paused.approvals),
            outputs=tuple(ToolOutput(c.call_id, "from the caller") for c in paused.tool_calls),
        )


def plain(value: Any) -> Any:
    """As JSON, without the time it took."""
    data = value if isinstance(value, dict) else {"type": type(value).__name__, **asdict(value)}
    return re.sub(r'"duration_ms": \d+', '"duration_ms": 0', json.dumps(data, default=repr))


def numbered_ids(texts: list[Any]) -> list[str]:
    """The texts with ids of ours, which are others each time, numbered as they come."""
    names: dict[str, str] = {}

    def name(match: re.Match[str]) -> str:
        return names.setdefault(match[0], f"<{len(names)}>")

    return [re.sub(r"\b(item|appr|approval)_[0-9A-Za-z]{8,}", name, str(each)) for each in texts]


# --- the scenes ---------------------------------------------------------------------------------


@function_tool
def lookup(q: str) -> str:
    """Look something up."""
    return f"{q}: found"


@function_tool(needs_approval=True)
def guarded(q: str) -> str:
    """Looks a word up, if a person approves."""
    return f"{q}: found"


def inputs(context: RunContextWrapper[Any]) -> str:
    """What an agent's own code can read of the input."""
    return json.dumps(context.turn_input, default=repr)


def curious_tool(seen: Seen, **options: Any) -> Any:
    def look(context: RunContextWrapper[Any], q: str) -> str:
        """Look at the input."""
        seen.append(("tool", inputs(context)))
        return f"{q}: seen"

    return function_tool(look, **options)


def one(*tools: Any, **fields: Any) -> Callable[[Seen], list[Runnable]]:
    return lambda seen: [Agent(name="plain", tools=list(tools), **fields)]


def with_curious_tool(seen: Seen) -> list[Runnable]:
    return [
        Agent(
            name="plain",
            tools=[curious_tool(seen), curious_tool(seen, needs_approval=True, name_override="ask")],
        )
    ]


def with_instructions(seen: Seen) -> list[Runnable]:
    def instructions(context: RunContextWrapper[Any], agent: Agent[Any]) -> str:
        seen.append(("instructions", inputs(context)))
        return f"There are {len(context.turn_input)} items."

    return [Agent(name="plain", instructions=instructions, tools=[lookup])]


def with_conditions(seen: Seen) -> list[Runnable]:
    def enabled(context: RunContextWrapper[Any], agent: Any) -> bool:
        seen.append(("enabled", inputs(context)))
        return True

    async def approves(context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
        seen.append(("approves", inputs(context)))
        return bool(arguments["q"] == "kelp")

    @tool_input_guardrail
    def check(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        seen.append(("guardrail", inputs(data.context)))
        if "moss" in data.context.tool_arguments:
            return ToolGuardrailFunctionOutput.reject_content("no moss")
        return ToolGuardrailFunctionOutput.allow()

    return [
        Agent(
            name="plain",
            tools=[
                curious_tool(seen, needs_approval=approves, is_enabled=enabled, tool_input_guardrails=[check])
            ],
        )
    ]


class Ends(AgentHooks[Any]):
    def __init__(self, seen: Seen) -> None:
        self.seen = seen

    async def on_end(self, context: Any, agent: Any, output: Any) -> None:
        self.seen.append(("end", inputs(context)))

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        self.seen.append(("tool start", inputs(context)))

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: object) -> None:
        self.seen.append(("tool end", inputs(context)))

    async def on_handoff(self, context: Any, agent: Any, source: Any) -> None:
        self.seen.append(("handoff", inputs(context)))

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        self.seen.append(("llm end", inputs(context)))


def with_hooks(seen: Seen) -> list[Runnable]:
    other = Agent[Any](name="other", hooks=Ends(seen), tools=[guarded])
    return [Agent(name="plain", hooks=Ends(seen), tools=[lookup], handoffs=[other])]


def with_output_guardrail(seen: Seen) -> list[Runnable]:
    @output_guardrail
    def check(context: RunContextWrapper[Any], agent: Agent[Any], output: Any) -> GuardrailFunctionOutput:
        seen.append(("output", inputs(context), str(output)))
        return GuardrailFunctionOutput(None, tripwire_triggered="bad" in str(output))

    return [Agent(name="plain", output_guardrails=[check], tools=[lookup])]


def with_agents_as_tools(seen: Seen) -> list[Runnable]:
    async def extracted(result: Any) -> str:
        seen.append(("extracted", json.dumps(result.to_input_list(), default=repr)))
        return str(result.final_output)

    clerk = Agent[Any](name="clerk", tools=[guarded, curious_tool(seen)])
    return [Agent(name="plain", tools=[clerk.as_tool("clerk", "Ask.", custom_output_extractor=extracted)])]


def with_runs_inside(seen: Seen) -> list[Runnable]:
    inner = Agent[Any](name="inner")

    @function_tool
    async def again(context: RunContextWrapper[Any]) -> str:
        """Ask another agent about all of this."""
        result = await Runner.run(inner, context.turn_input, context=context.context)
        return str(result.final_output)

    return [Agent(name="plain", tools=[again])]


def with_behavior(seen: Seen) -> list[Runnable]:
    def behavior(
        context: RunContextWrapper[Any], results: list[FunctionToolResult]
    ) -> ToolsToFinalOutputResult:
        seen.append(("behavior", inputs(context)))
        is_final = any("moss" in str(result.output) for result in results)
        return ToolsToFinalOutputResult(is_final, f"said by {len(results)}" if is_final else None)

    return [Agent(name="plain", tools=[lookup], tool_use_behavior=behavior)]


class Verdict(BaseModel):
    good: bool


class Steps(Workflow):
    """One run, and two more."""

    name = "steps"

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._agent = Agent[Any](name="first", tools=[guarded], hooks=Ends(seen))

    @property
    def agents(self) -> list[Agent[Any]]:
        return [self._agent]

    @asynccontextmanager
    async def open(self, turn: WorkflowTurn) -> AsyncIterator[WorkflowRun]:
        async def finish(result: Any, more: Any) -> Any:
            self._look(result)
            judge = Agent[Any](name="judge", output_type=Verdict, hooks=Ends(self._seen))
            judged = await more(judge, "Is it good?")
            self._look(judged)
            self._look(await more(Agent[Any](name="writer", tools=[lookup]), "Write it up."))
            return judged.final_output

        self._seen.append(("history", json.dumps(turn.history)))
        yield WorkflowRun(self._agent, turn.input, context={"mine": 1}, hooks=OnEnd(self._seen), finish=finish)

    def _look(self, result: Any) -> None:
        self._seen.append(
            ("result", json.dumps(result.input), json.dumps(result.to_input_list(), default=repr))
        )


class OnEnd(RunHooks[Any]):
    def __init__(self, seen: Seen) -> None:
        self.seen = seen

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        self.seen.append(("run end", inputs(context)))

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: object) -> None:
        self.seen.append(("run tool end", inputs(context)))


MIXED: list[Item] = [
    {"type": "message", "role": "user", "content": "Hello"},
    {"type": "reasoning", "id": "rs_old", "summary": [], "encrypted_content": "x"},
    {"type": "message", "role": "assistant", "id": "msg_old", "status": "completed", "content": "Well."},
    {
        "type": "function_call",
        "id": "fc_old",
        "call_id": "call_old",
        "name": "lookup",
        "arguments": '{"q":"a"}',
    },
    {"type": "function_call", "call_id": "call_old2", "name": "look it up", "arguments": "[1]"},
    {"type": "function_call_output", "call_id": "call_old", "output": "found"},
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    | {"provider_data": {"upstream": "loop", "field": "reasoning_content"}},
    {
        "type": "function_call",
        "id": "fc_o3",
        "call_id": "call_old3",
        "name": "lookup",
        "arguments": '{"q":"a"}',
    },
    {"type": "function_call_output", "call_id": "call_old3", "output": "cancelled"},
]
LIST_INPUT = [
    {"role": "system", "content": "Be brief.", "transient": True},
    {"role": "assistant", "content": "Well."},
    {"role": "user", "content": [{"type": "input_text", "text": "And moss?"}]},
]
SCENES = {
    "talk": Scene(one(), [[text("Hi.")], [text("Ho.")]]),
    "several steps": Scene(
        one(lookup),
        [
            [("thought", "hm"), text("Let me see."), call("lookup", q="kelp"), call("lookup", q="moss")],
            [call("lookup", q="sand"), call("missing", q="x")],
            [text("Hi.")],
            [("thought", "ho"), call("lookup", q="rock")],
            [text("Ho.")],
        ],
        history=MIXED,
    ),
    "a list that a user does not begin": Scene(
        one(lookup),
        [[call("lookup", q="kelp")], [text("Hi.")], [call("lookup", q="moss")], [text("Ho.")]],
        turns=[LIST_INPUT, LIST_INPUT[1:2]],
        history=MIXED,
    ),
    "a tool that looks": Scene(
        with_curious_tool,
        [
            [call("look", q="a")],
            [call("ask", q="b"), call("look", q="c")],
            [call("ask", q="d")],
            [text("Hi.")],
            [call("ask", q="e")],
            [text("Ho.")],
        ],
    ),
    "instructions": Scene(with_instructions, [[call("lookup", q="a")], [text("Hi.")], [text("Ho.")]]),
    "conditions": Scene(
        with_conditions,
        [
            [call("look", q="kelp"), call("look", q="moss")],
            [call("look", q="kelp")],
            [text("Hi.")],
            [call("look", q="sand")],
            [text("Ho.")],
        ],
    ),
    "hooks of an agent and a handoff": Scene(
        with_hooks,
        [
            [call("lookup", q="a")],
            [call("transfer_to_other")],
            [call("guarded", q="b")],
            [text("Hi.")],
            [text("Ho.")],
        ],
    ),
    "output guardrail": Scene(with_output_guardrail, [[call("lookup", q="a")], [text("Hi.")], [text("bad")]]),
    "agents as tools": Scene(
        with_agents_as_tools,
        [
            [call("clerk", input="Who?")],
            [call("look", q="b")],
            [call("guarded", q="b")],
            [text("Me.")],
            [text("Hi.")],
            [text("Ho.")],
        ],
    ),
    "runs inside": Scene(with_runs_inside, [[call("again")], [text("Me.")], [text("Hi.")], [text("Ho.")]]),
    "behavior": Scene(with_behavior, [[call("lookup", q="a")], [call("lookup", q="moss")], [text("Ho.")]]),
    "first tool is the answer": Scene(
        one(lookup, tool_use_behavior="stop_on_first_tool"), [[call("lookup", q="a")], [text("Ho.")]]
    ),
    "structured": Scene(one(output_type=Verdict), [[text('{"good": true}')], [text('{"good": false}')]]),
    "pauses": Scene(
        one(guarded, lookup),
        [
            [call("guarded", q="a"), call("lookup", q="b")],
            [call("guarded", q="c"), call("guarded", q="d")],
            [text("Hi.")],
            [call("guarded", q="e")],
            [text("Ho.")],
        ],
        history=MIXED,
    ),
    "pauses on a list": Scene(
        one(guarded),
        [[call("guarded", q="a")], [text("Hi.")], [call("guarded", q="e")], [text("Ho.")]],
        turns=[LIST_INPUT, LIST_INPUT[1:2]],
    ),
    "rejected": Scene(
        one(guarded),
        [[call("guarded", q="a")], [text("Hi.")], [text("Ho.")]],
        decision={"decision": "reject", "reason": "too wet"},
    ),
    "edited": Scene(
        one(guarded),
        [[call("guarded", q="a")], [text("Hi.")], [text("Ho.")]],
        decision={"decision": "approve", "arguments": {"q": "moss"}},
    ),
    "always": Scene(
        one(guarded),
        [[call("guarded", q="a")], [call("guarded", q="b")], [text("Hi.")], [text("Ho.")]],
        decision={"decision": "approve", "always": True},
    ),
    "client tools": Scene(
        one(guarded),
        [
            [call("mine", q="a"), call("guarded", q="b")],
            [call("mine", q="c")],
            [text("Hi.")],
            [text("Ho.")],
        ],
        request={"tools": [ClientTool(name="mine")]},
    ),
    "stepwise": Scene(
        one(lookup, guarded),
        [
            [call("lookup", q="a")],
            [call("guarded", q="b")],
            [call("lookup", q="c")],
            [text("Hi.")],
            [text("Ho.")],
        ],
        request={"stepwise": True},
    ),
    "too many steps": Scene(
        one(lookup), [[call("lookup", q="a")], [call("lookup", q="b")], [text("Ho.")]], request={"max_steps": 2}
    ),
    "a workflow": Scene(
        lambda seen: [Steps(seen)],
        [
            [call("guarded", q="a")],
            [text("Hi.")],
            [text('{"good": true}')],
            [call("lookup", q="a")],
            [text("Written.")],
        ],
        turns=["Go on."],
    ),
}


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("limit", [0, 3])
@pytest.mark.parametrize("name", SCENES)
async def test_it_is_the_same(
    name: str, wire: Wire, restarts: bool, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = replace(SCENES[name], history_items=limit)
    looked: list[bool] = []

    def told(*args: Any) -> bool:
        looked.append(has_onlookers(*args))
        return looked[-1]

    monkeypatch.setattr(runner, "has_onlookers", told)
    as_one = await played(scene, wire, restarts=restarts)
    assert not any(looked)
    monkeypatch.setattr(runner, "has_onlookers", lambda *args: True)
    one_by_one = await played(scene, wire, restarts=restarts)
    for each in ("sent", "outcomes", "events", "stored", "seen"):
        ours, theirs = (numbered_ids(getattr(p, each)) for p in (as_one, one_by_one))
        assert ours == theirs
