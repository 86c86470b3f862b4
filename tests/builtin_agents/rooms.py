"""What the desk's tests share: the brain as a model, workspaces, and a turn run by the SDK's own runner."""

import itertools
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agents import Agent, Model, ModelProvider, RunConfig, Runner, RunResult, RunState
from agents.result import RunResultBase
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call

from app.builtin_agents.healthcare_support import HealthcareSupport, Records
from app.domain.json_types import Item, JsonObject
from app.runtime.workflow import WorkflowRun, WorkflowTurn
from app.sandbox import Sandboxes
from demo.healthcare_brain import brain
from tests.upstream.brain import Seen

Brain = Callable[[Seen], JsonObject | Awaitable[JsonObject]]
Answers = tuple[bool, ...]
MAX_CALLS = 60


class BrainModels(ModelProvider):
    """Every model name leads to the brain; `seen` holds what it was sent."""

    def __init__(self, play: Brain = brain) -> None:
        self.seen: list[Seen] = []
        self._play = play
        self._ids = itertools.count(1)

    def get_model(self, model_name: str | None) -> Model:
        return ScriptedModel([ModelStep.respond(self._respond)] * MAX_CALLS)

    async def _respond(self, call: ModelCall) -> list[Any]:
        items = [{"role": "user", "content": call.input}] if isinstance(call.input, str) else call.input
        request = {
            "model": "brain",
            "instructions": call.system_instructions,
            "input": items,
            "tools": [{"name": tool.name} for tool in call.tools],
        }
        seen = Seen.of(request)
        self.seen.append(seen)
        reply = self._play(seen)
        return self._output(await reply if isinstance(reply, Awaitable) else reply)

    def _output(self, reply: JsonObject) -> list[Any]:
        if "text" in reply:
            return [assistant_message(reply["text"])]
        return [
            function_call(call["name"], json.dumps(call["arguments"]), call_id=f"call_{next(self._ids)}")
            for call in reply["tool_calls"]
        ]


@dataclass
class KeptArtifacts:
    """Artifacts in memory."""

    files: dict[str, bytes] = field(default_factory=dict)

    async def add(self, name: str, content: bytes, media_type: str | None = None) -> JsonObject:
        self.files[name] = content
        return {"artifact_id": f"art_{len(self.files)}", "name": name, "media_type": media_type}


@dataclass
class Ended:
    payload: JsonObject
    history: list[Item]


class Room:
    """One turn at the desk, run as the service runs it, but by the SDK's runner alone."""

    def __init__(
        self,
        sandboxes: Sandboxes,
        *,
        play: Brain = brain,
        records: Records | None = None,
        history: Sequence[Item] = (),
        turn_id: str = "turn_1",
    ) -> None:
        self.desk = HealthcareSupport(sandboxes, records)
        self.models = BrainModels(play)
        self.artifacts = KeptArtifacts()
        self.events: list[tuple[str, Any]] = []
        self.history = list(history)
        self.turn_id = turn_id
        self.saved: JsonObject | None = None
        self.input_text = ""

    async def resolve(self, text: str, *rounds: Answers) -> Ended:
        """Run to the end; each of `rounds` answers a pause that must come, call by call."""
        state = await self.begin(text)
        for answers in rounds:
            assert isinstance(state, dict), "the turn ended before it asked"
            state = await self.go_on(state, answers)
        assert isinstance(state, Ended), "the turn waits for an approval"
        return state

    async def begin(self, text: str) -> Ended | JsonObject:
        """Run to the end, or until an approval is asked for: then the SDK's state as JSON."""
        self.input_text = text
        async with self.desk.open(self.turn()) as run:
            return await self._run(run, [*self.history, *run.input])

    async def go_on(self, sdk_state: JsonObject, answers: Answers) -> Ended | JsonObject:
        async with self.desk.open(self.turn()) as run:
            state: RunState[Any] = await RunState.from_json(run.agent, sdk_state, context_override=run.context)
            for item, approve in zip(state.get_interruptions(), answers, strict=True):
                if approve:
                    state.approve(item)
                else:
                    state.reject(item, rejection_message="Not this one.")
            return await self._run(run, state)

    async def _run(self, run: WorkflowRun, what: Any) -> Ended | JsonObject:
        result = await self._sdk_run(run, run.agent, what, hooks=run.hooks)
        if result.interruptions:
            self.saved = json.loads(json.dumps(run.save()))
            return result.to_state().to_json(context_serializer=lambda _: {})
        last: RunResultBase = result

        async def run_more(agent: Agent[Any], input: str, *, context: Any = None) -> RunResultBase:
            nonlocal last
            asked = {"role": "user", "content": input}
            last = await self._sdk_run(run, agent, [*result.to_input_list(), asked])
            return last

        assert run.finish is not None
        payload = await run.finish(result, run_more)
        return Ended(payload, [dict(item) for item in last.to_input_list()])

    async def _sdk_run(self, run: WorkflowRun, agent: Agent[Any], input: Any, **options: Any) -> RunResult:
        assert run.run_config is not None
        config = RunConfig(
            model_provider=self.models,
            tracing_disabled=True,
            sandbox=run.run_config.sandbox,
            group_id=run.run_config.group_id,
        )
        return await Runner.run(agent, input, context=run.context, run_config=config, max_turns=50, **options)

    def names(self) -> list[str]:
        """The events so far, by name."""
        return [name for name, _ in self.events]

    def turn(self) -> WorkflowTurn:
        return WorkflowTurn(
            turn_id=self.turn_id,
            conversation_id="conv_1",
            caller="anonymous",
            user=None,
            metadata={},
            input=[],
            input_text=self.input_text,
            history=self.history,
            trace_id="trace_" + "0" * 32,
            trace_url=None,
            report=lambda name, data: self.events.append((name, data)),
            artifacts=self.artifacts,
            saved=self.saved,
        )
