"""Runs turns: builds what the SDK needs for each run, starts it, and says how it ended.

History goes in as plain input and comes out through the sink: the SDK gets no session.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from agents import Agent, RunConfig, RunResultStreaming, RunState
from agents.exceptions import InputGuardrailTripwireTriggered
from agents.run_config import ToolErrorFormatterArgs
from anyio import to_thread

from app.domain.json_types import Item
from app.domain.ports import (
    EventSink,
    RunControl,
    RunFailed,
    RunJob,
    RunOutcome,
)
from app.domain.turn import Turn, TurnError
from app.runtime import paused_state
from app.runtime.agent_runner import TurnAgentRunner
from app.runtime.compaction import Compactor
from app.runtime.containment import contained
from app.runtime.failures import turn_error
from app.runtime.history import everything, known, looked_through, model_history
from app.runtime.models.past import Past, expanded
from app.runtime.observer import current_scope
from app.runtime.onlookers import has_onlookers
from app.runtime.paused_state import Unpacked
from app.runtime.plans import Plans
from app.runtime.policy import TurnPolicy, no_policy
from app.runtime.preparation import Preparation
from app.runtime.run import Run
from app.runtime.run_context import RunContext
from app.runtime.scope import RunFrame, TurnScope
from app.runtime.tools import said
from app.runtime.tracing import NO_TRACING, Tracing, trace_id
from app.runtime.workflow import WorkflowRun

logger = logging.getLogger(__name__)

ROLLBACK_CODES = frozenset({"policy_denied", "context_length_exceeded"})


@dataclass(frozen=True, slots=True)
class RunLimits:
    """`max_steps` is the setting; a request can only lower it."""

    max_steps: int
    history_items: int
    max_shown_output: int
    reasoning_ids: Literal["preserve", "omit"] | None = None
    """What becomes of the ids of reasoning items that go back to their provider; None: the SDK's way."""


class Runner:
    """Runs turns, one run at a time each."""

    def __init__(
        self,
        preparation: Preparation,
        agent_runner: TurnAgentRunner,
        plans: Plans,
        limits: RunLimits,
        compactor: Compactor,
        *,
        policies: Callable[[Turn], TurnPolicy | None] = no_policy,
        tracing: Tracing = NO_TRACING,
    ) -> None:
        self._preparation = preparation
        self._agent_runner = agent_runner
        self._plans = plans
        self._limits = limits
        self._compactor = compactor
        self._policies = policies
        self._tracing = tracing

    async def run(self, job: RunJob, sink: EventSink, control: RunControl, deadline: float) -> RunOutcome:
        """Until the agent is done, pauses, fails or is stopped. Only cancellation gets out."""
        try:
            return await contained(self._run(job, sink, control, deadline))
        except paused_state.StateMismatch as mismatch:
            logger.warning("paused state refused: %s", mismatch)
            message = f"The paused state no longer fits: {mismatch}. Send the request again."
            return RunFailed(TurnError("interrupted", message, retryable=True))
        except Exception as error:  # noqa: BLE001
            # The boundary of a run: whatever an agent, a tool or the SDK raised becomes the turn's error.
            failure = turn_error(error)
            log = logger.exception if failure.code == "internal" else logger.info
            log("run failed: %s", failure.code)
            return RunFailed(failure, rollback=_ends_as_rollback(failure, error))

    async def _run(self, job: RunJob, sink: EventSink, control: RunControl, deadline: float) -> RunOutcome:
        # What is paused knows how much of the history it was given.
        limit = self._limits.history_items if job.state is None else 0
        items = everything(job)
        ids, origins = await looked_through(items, known, items)
        state = None if job.state is None else await to_thread.run_sync(paused_state.unpacked, job.state)
        scope = TurnScope(
            sink,
            taken_ids=ids,
            deadline=deadline,
            client_tools=frozenset(tool.name for tool in job.turn.request.tools),
            steps_before=job.steps_before,
            max_shown_output=self._limits.max_shown_output,
            recorded=job.recorded,
            policy=self._policies(job.turn),
            origins=origins,
            omit_reasoning_ids=self._limits.reasoning_ids == "omit",
            observe_made=self._preparation.observe_made,
        )
        if state is not None:
            state.notes.go_on(scope)
        before = await self._compactor.history(job, scope, control)
        history = await looked_through(before, model_history, before, limit)
        async with self._plans.open(job, scope, history, state.notes.context if state else None) as plan:
            with self._tracing.of_run(job.turn, self._config(job.turn, plan)):
                return await self._go(job, scope, control, plan, history, state)

    async def _go(
        self,
        job: RunJob,
        scope: TurnScope,
        control: RunControl,
        plan: WorkflowRun,
        history: list[Item],
        state: Unpacked | None,
    ) -> RunOutcome:
        """Begin, or go on where the turn was paused."""
        given = all_items = [*history, *plan.input]
        if state is not None:
            given = await to_thread.run_sync(state.model_input, all_items)
        past = Past(given[: max(0, len(given) - len(plan.input))])
        # They hold each other, and none of them the job: its history shall go with the run.
        start = partial(self._start, job.turn, scope.top, plan)
        notes = state.notes if state is not None else None
        run = Run(start, self._preparation.adopt, job.turn, scope, control, plan, past, notes)
        try:
            if state is None:
                return await run.begin()
            seen = has_onlookers(plan.agent, self._config(job.turn, plan), plan.hooks, plan.context)
            entries = given if seen else [past, *given[len(past.items) :]]
            return await run.go_on(await state.restored(plan.agent, entries, plan.context), job.answers)
        finally:
            past.let_go()

    def _config(self, turn: Turn, plan: WorkflowRun) -> RunConfig:
        """The plan's own configuration, with what is always the service's."""
        config = plan.run_config or RunConfig()
        if self._limits.reasoning_ids is not None:
            # `omit` is done where a request is made: who made an item is known by its id.
            config = replace(config, reasoning_item_id_policy="preserve")
        config = replace(
            config,
            model=turn.request.model,
            model_provider=self._preparation.models,
            model_settings=self._preparation.model_settings(turn.request),
            workflow_name=turn.agent,
            trace_id=trace_id(turn),
            group_id=plan.run_config.group_id if plan.run_config else turn.conversation_id,
            tool_error_formatter=_tool_error,
            tool_not_found_behavior="return_error_to_model",
        )
        return self._tracing.applied(config)

    def _start(
        self, turn: Turn, frame: RunFrame, plan: WorkflowRun, agent: Agent[Any], input: Any, context: Any
    ) -> RunResultStreaming:
        asked = turn.request.max_steps or self._limits.max_steps
        config = self._config(turn, plan)
        if not isinstance(input, RunState):
            if has_onlookers(agent, config, plan.hooks, context):
                input = expanded(input)
            else:
                context = RunContext(context)
        return self._agent_runner.start(
            agent,
            input,
            frame,
            context=context,
            max_turns=min(asked, self._limits.max_steps),
            run_config=config,
            hooks=plan.hooks,
        )


def _tool_error(args: ToolErrorFormatterArgs[Any]) -> str | None:
    """Tell the model what went wrong, and remember it for the call's event."""
    frame = current_scope.get()
    call = frame.call(args.call_id) if isinstance(frame, RunFrame) else None
    match args.kind:
        case "tool_exception":
            text = said(args.error) if args.error else args.default_message
            if call:
                call.raised = text
            return f"An error occurred while running the tool: {text}"
        case "tool_not_found":
            if call:
                call.raised = f"There is no tool {args.tool_name!r}."
            return None
        case "approval_rejected":
            if call:
                call.blocked = call.blocked or args.default_message
            return None


def _ends_as_rollback(failure: TurnError, error: BaseException) -> bool:
    by_input = failure.code == "guardrail_tripped" and isinstance(error, InputGuardrailTripwireTriggered)
    return by_input or failure.code in ROLLBACK_CODES
