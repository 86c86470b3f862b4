"""Runs inside a turn, however they are begun: by us, by an agent that runs as a tool, by a user's own code.

The SDK starts nested runs through its default `AgentRunner`. Ours gives each of them a frame of its own, the
hooks that watch it, our model provider and our tracing switch, so that a plain `as_tool()`, a guardrail with
an agent of its own and a tool that calls `Runner.run` all run on the configured upstream and are seen.

`AgentRunner` and `set_default_agent_runner` are not part of the SDK's stable surface: the version is pinned,
`tests/runtime/test_agent_runner.py` fails when they change, and without them nested runs still work by what
`as_tool()` inherits; they are only not shown.
"""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from agents import Agent, ModelProvider, ModelSettings, RunConfig, RunResult, RunResultStreaming, RunState
from agents.run import AgentRunner, get_default_agent_runner, set_default_agent_runner
from agents.tool_context import ToolContext

from app.runtime.hooks import RunWatcher
from app.runtime.observer import current_scope
from app.runtime.scope import RunFrame, current_call
from app.runtime.tracing import Tracing


class TurnAgentRunner(AgentRunner):
    """The default runner while the service runs. Outside of a turn it is the SDK's own."""

    def __init__(self, models: ModelProvider, adopt: Callable[[Agent[Any]], None], *, tracing: Tracing) -> None:
        super().__init__()
        self._models = models
        self._adopt = adopt
        self._tracing = tracing

    def start(self, agent: Agent[Any], input: Any, frame: RunFrame, **options: Any) -> RunResultStreaming:
        """Begin the top agent's run of a turn, in its frame."""
        token = current_scope.set(frame)
        try:
            options["hooks"] = RunWatcher(frame, options.get("hooks"))
            frame.turn.run_config = options.get("run_config")
            return super().run_streamed(agent, input, **options)
        finally:
            current_scope.reset(token)

    async def run(self, starting_agent: Agent[Any], input: Any, **options: Any) -> RunResult:
        outer = current_scope.get()
        if not isinstance(outer, RunFrame):
            return await super().run(starting_agent, input, **options)
        frame = self._nested(outer, starting_agent, input, options)
        token = current_scope.set(frame)
        waits = False
        try:
            result = await super().run(starting_agent, input, **options)
            waits = bool(result.interruptions)
            return result
        finally:
            current_scope.reset(token)
            if not waits:
                frame.close_step()

    def run_streamed(self, starting_agent: Agent[Any], input: Any, **options: Any) -> RunResultStreaming:
        outer = current_scope.get()
        if not isinstance(outer, RunFrame):
            return super().run_streamed(starting_agent, input, **options)
        frame = self._nested(outer, starting_agent, input, options)
        token = current_scope.set(frame)
        try:
            return super().run_streamed(starting_agent, input, **options)
        finally:
            current_scope.reset(token)

    def _nested(self, outer: RunFrame, agent: Agent[Any], input: Any, options: dict[str, Any]) -> RunFrame:
        """A frame for a run inside `outer`; fills in what the run must have of ours."""
        self._adopt(agent)
        context = options.get("context")
        call_id = context.tool_call_id if isinstance(context, ToolContext) else current_call.get()
        if call_id is None or outer.silent:
            frame = RunFrame(outer.turn, parent_call_id=call_id, silent=True)
        else:
            frame = outer.turn.nested(call_id, go_on=isinstance(input, RunState))
        frame.agent = agent.name
        options["hooks"] = RunWatcher(frame, options.get("hooks"))
        options["run_config"] = self._ours(options.get("run_config"), outer.turn.run_config)
        return frame

    def _ours(self, given: RunConfig | None, turn: RunConfig | None) -> RunConfig:
        """The run's own configuration, on our provider; what it leaves open is as the caller wants it."""
        config, turn = given or RunConfig(), turn or RunConfig()
        settings = (turn.model_settings or ModelSettings()).resolve(config.model_settings)
        ours = dataclasses.replace(
            config, model_provider=self._models, model=config.model or turn.model, model_settings=settings
        )
        return self._tracing.applied(ours)


@contextmanager
def installed(runner: TurnAgentRunner) -> Iterator[None]:
    """Make `runner` the SDK's default for as long as the block runs."""
    before = get_default_agent_runner()
    set_default_agent_runner(runner)
    try:
        yield
    finally:
        set_default_agent_runner(before)
