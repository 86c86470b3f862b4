"""One run of a turn: builds what the SDK needs, starts it, and says how it ended.

The run's events come from the taps (see `observer`); the SDK's own stream is only drained, for the outputs
that no tap sees. History goes in as plain input and comes out through the sink: the SDK gets no session.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Literal

from agents import Agent, RunConfig, RunResultStreaming, RunState
from agents.exceptions import UserError
from agents.items import HandoffOutputItem, MCPApprovalResponseItem, ToolCallOutputItem
from agents.result import RunResultBase
from agents.run_config import ToolErrorFormatterArgs
from agents.stream_events import RunItemStreamEvent, StreamEvent
from anyio import to_thread

from app.domain.conversation import NewItem, StoredItem
from app.domain.events import MessageCompleted, MessageDelta, MessageStarted
from app.domain.history import OUTPUT_TYPES, newest, repaired
from app.domain.ids import new_item_id
from app.domain.json_types import Item
from app.domain.pause import PauseReason
from app.domain.ports import (
    EventSink,
    RunCompleted,
    RunControl,
    RunFailed,
    RunJob,
    RunOutcome,
    RunPaused,
    RunStopped,
)
from app.domain.turn import CancelMode, Turn, TurnError
from app.runtime import paused_state
from app.runtime.agent_runner import TurnAgentRunner
from app.runtime.compaction import Compactor
from app.runtime.failures import PolicyDenied, turn_error
from app.runtime.hooks import close_unrun
from app.runtime.observer import current_scope
from app.runtime.outputs import plain_json
from app.runtime.paused_state import Notes, PausedRun
from app.runtime.pauses import Interruptions, Rules
from app.runtime.plans import Plans, user_message
from app.runtime.policy import TurnPolicy, no_policy
from app.runtime.preparation import Preparation
from app.runtime.scope import RunFrame, TurnScope
from app.runtime.tools import said
from app.runtime.tracing import NO_TRACING, Tracing, trace_id
from app.runtime.workflow import WorkflowRun

logger = logging.getLogger(__name__)

UNWIND_S = 2.0
"""How long a cancelled run may take to let go of its upstream and tools."""
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
            return await self._run(job, sink, control, deadline)
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
        ids, origins = await to_thread.run_sync(_known, job)
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
        history = await to_thread.run_sync(_history, before, limit)
        async with self._plans.open(job, scope, history, state.notes.context if state else None) as plan:
            everything = [*history, *plan.input]
            with self._tracing.of_run(job.turn, self.config(job, plan)):
                if state is None:
                    return await _Run(self, job, scope, control, plan, everything).begin()
                model_input = await to_thread.run_sync(state.model_input, everything)
                sdk_state = await state.restored(plan.agent, model_input, plan.context)
                return await _Run(self, job, scope, control, plan, model_input, state.notes).go_on(sdk_state)

    def config(self, job: RunJob, plan: WorkflowRun) -> RunConfig:
        """The plan's own configuration, with what is always the service's."""
        config = plan.run_config or RunConfig()
        if self._limits.reasoning_ids is not None:
            # `omit` is done where a request is made: who made an item is known by its id.
            config = replace(config, reasoning_item_id_policy="preserve")
        config = replace(
            config,
            model=job.turn.request.model,
            model_provider=self._preparation.models,
            model_settings=self._preparation.model_settings(job.turn.request),
            workflow_name=job.prepared.agent,
            trace_id=trace_id(job.turn),
            group_id=plan.run_config.group_id if plan.run_config else job.turn.conversation_id,
            tool_error_formatter=_tool_error,
            tool_not_found_behavior="return_error_to_model",
        )
        return self._tracing.applied(config)

    def start(
        self, agent: Agent[Any], input: Any, job: RunJob, frame: RunFrame, plan: WorkflowRun, context: Any
    ) -> RunResultStreaming:
        asked = job.turn.request.max_steps or self._limits.max_steps
        return self._agent_runner.start(
            agent,
            input,
            frame,
            context=context,
            max_turns=min(asked, self._limits.max_steps),
            run_config=self.config(job, plan),
            hooks=plan.hooks,
        )

    def adopt(self, agent: Agent[Any]) -> None:
        self._preparation.adopt(agent)

    @property
    def limits(self) -> RunLimits:
        return self._limits


class _Run:
    """The SDK's runner at work for one run of a turn."""

    def __init__(
        self,
        runner: Runner,
        job: RunJob,
        scope: TurnScope,
        control: RunControl,
        plan: WorkflowRun,
        model_input: list[Item],
        notes: Notes | None = None,
    ) -> None:
        self._runner = runner
        self._job = job
        self._scope = scope
        self._control = control
        self._plan = plan
        self.model_input = model_input
        self._result: RunResultStreaming | None = None
        self._tripped: str | None = None
        self._denied: PolicyDenied | None = None
        self._after_step = False
        self._rules = Rules(
            auto=job.turn.request.approvals == "auto", kept=notes.rules if notes is not None else ()
        )
        self._rounds = notes.rounds if notes is not None else 0
        scope.on_tripped = self._trip
        scope.on_denied = self._deny

    async def begin(self) -> RunOutcome:
        return await self._drive(list(self.model_input))

    async def go_on(self, state: RunState[Any]) -> RunOutcome:
        """Resume with the answers that the pause got."""
        Interruptions(self._scope, state, self._rules).answer(self._job.answers)
        return await self._drive(state)

    async def _drive(self, input: Any) -> RunOutcome:
        """Run until an end, going on by ourselves where nobody has to be asked."""
        while True:
            result = await self._stream(input)
            if self._tripped is not None:
                message = f"The input was refused by the guardrail {self._tripped!r}."
                return RunFailed(TurnError("guardrail_tripped", message), rollback=True)
            if self._control.cancel_mode == "after_step" and result.final_output is None:
                return RunStopped()
            if result.interruptions:
                state = result.to_state()
                waiting = Interruptions(self._scope, state, self._rules)
                if not waiting.decided_by_rule():
                    return await self._paused(state, waiting)
            elif self._job.turn.request.stepwise and result.final_output is None:
                state = result.to_state()
                if self._scope.top.called_tools:
                    return await self._paused_after_step(state)
            else:
                return await self._ended(result)
            input = state

    async def _stream(self, input: Any) -> RunResultStreaming:
        frame = self._scope.top
        plan = self._plan
        result = self._runner.start(plan.agent, input, self._job, frame, plan, plan.context)
        return await self._drain(result)

    async def _drain(self, result: RunResultStreaming) -> RunResultStreaming:
        """Follow a run to its end; whoever is cancelled here stops it and waits until it has let go."""
        self._result = result
        self._after_step = False
        self._control.on_cancel(self._cancelled)
        try:
            async with aclosing(result.stream_events()) as events:  # type: ignore[type-var]
                async for event in events:
                    self._drained(event)
        except BaseException as error:
            await _unwind(result)
            if self._denied is not None and isinstance(error, Exception):
                raise self._denied from error
            raise
        if self._denied is not None:
            raise self._denied
        if result.run_loop_exception is not None and self._tripped is None:
            raise result.run_loop_exception
        return result

    def _drained(self, event: StreamEvent) -> None:
        """The SDK's stream is read for the outputs that no tap sees, and to know that a step is under way."""
        if self._job.turn.request.stepwise and self._result is not None and not self._after_step:
            self._after_step = True
            self._result.cancel("after_turn")
        if not isinstance(event, RunItemStreamEvent):
            return
        if isinstance(event.item, ToolCallOutputItem | HandoffOutputItem | MCPApprovalResponseItem):
            item: Item = dict(event.item.to_input_item())
            if item.get("type") in OUTPUT_TYPES:
                close_unrun(self._scope.top, item)
                self._scope.record_output(item)
            elif item.get("type") == "mcp_approval_response":
                self._scope.record_output(item)

    def _cancelled(self, mode: CancelMode) -> None:
        """`after_step` lets the step under way end; before the first one there is nothing to wait for."""
        if mode == "after_step" and self._result is not None:
            self._result.cancel("after_turn" if self._scope.top.has_begun else "immediate")

    def _trip(self, name: str) -> None:
        """An input guardrail has refused the input: the model is stopped at once, not at its stream's end."""
        self._tripped = name
        if self._result is not None:
            self._result.cancel("immediate")

    def _deny(self, denied: PolicyDenied) -> None:
        """The policy forbids a nested agent's model call: the turn ends by it, as by one of the top agent's."""
        self._denied = denied
        if self._result is not None:
            self._result.cancel("immediate")

    async def _ended(self, result: RunResultStreaming) -> RunOutcome:
        frame = self._scope.top
        frame.close_step()
        output = result.final_output
        if self._plan.finish is not None:
            return RunCompleted(None, plain_json(await self._plan.finish(result, self._more)))
        if not isinstance(output, str):
            return RunCompleted(None, plain_json(output))
        if output and output != frame.last_text:
            _say(frame, output)
        return RunCompleted(output, None)

    async def _more(self, agent: Agent[Any], input: str, *, context: Any = None) -> RunResultBase:
        """See `workflow.RunMore`: another run of the turn, after all that the turn has said so far."""
        self._runner.adopt(agent)
        self._scope.record([NewItem(new_item_id(), user_message(input))])
        before = self.model_input[: len(self.model_input) - len(self._plan.input)]
        items = [*before, *repaired(new.item for new in self._scope.items)]
        result = self._runner.start(agent, items, self._job, self._scope.top, self._plan, context)
        await self._drain(result)
        if result.interruptions:
            raise UserError("a run after the main one cannot wait for approvals")
        self._scope.top.close_step()
        return result

    async def _paused(self, state: RunState[Any], waiting: Interruptions) -> RunOutcome:
        approvals, calls = waiting.pending()
        self._rounds += bool(approvals)
        most = self._plan.max_approval_rounds
        if most is not None and self._rounds > most:
            message = f"The turn asked for approval more than {most} times."
            return RunFailed(TurnError("approval_rounds_exceeded", message))
        waiting.announce(approvals)
        notes = self._notes()
        reason: PauseReason = "approval" if approvals else "tool_output"
        packed = await self._packed(state, notes)
        return RunPaused(packed, reason, approvals, calls)

    async def _paused_after_step(self, state: RunState[Any]) -> RunOutcome:
        self._scope.top.close_step()
        return RunPaused(await self._packed(state, self._notes()), "step")

    def _notes(self) -> Notes:
        runs = tuple(PausedRun.of(frame) for frame in self._scope.waiting())
        return Notes(
            self._plan.save(), runs, frozenset(self._scope.ids.claimed), self._rules.kept, self._rounds
        )

    async def _packed(self, state: RunState[Any], notes: Notes) -> bytes:
        return await to_thread.run_sync(paused_state.packed, state, self.model_input, notes)


async def _unwind(result: RunResultStreaming) -> None:
    """Stop a run and wait, under a bound, until it has let go: a cancel only asks."""
    result.cancel("immediate")
    task = result.run_loop_task
    if task is not None and not task.done():
        await asyncio.wait({task}, timeout=UNWIND_S)


def _history(before: Sequence[StoredItem], limit: int) -> list[Item]:
    """What came before, as the model gets it: valid for a strict provider, the newest `limit` items.

    Runs in a thread: a conversation may be long.
    """
    return newest(repaired(stored.item for stored in before), limit)


def _known(job: RunJob) -> tuple[set[str], dict[str, str]]:
    """The ids that are taken, and who made what. Runs in a thread too."""
    return _ids(job), _origins(job)


def _origins(job: RunJob) -> dict[str, str]:
    """Which upstream made what the conversation holds, by item id and call id."""
    stored = [(s.id, s.item, s.origin) for s in (*job.unfolded, *job.history)]
    new = [(n.id, n.item, n.origin) for n in job.recorded]
    origins: dict[str, str] = {}
    for item_id, item, origin in (*stored, *new):
        if origin is not None:
            origins[item_id] = origin
            origins |= {item[key]: origin for key in ("id", "call_id") if isinstance(item.get(key), str)}
    return origins


def _ids(job: RunJob) -> set[str]:
    """Every item id and call id that the conversation already holds."""
    stored = [(s.id, s.item) for s in (*job.unfolded, *job.history)]
    new = [(n.id, n.item) for n in (*job.recorded, *job.prepared.input_items)]
    ids: set[str] = set()
    for item_id, item in (*stored, *new):
        ids.add(item_id)
        ids |= {item[key] for key in ("id", "call_id") if isinstance(item.get(key), str)}
    return ids


def _say(frame: RunFrame, text: str) -> None:
    """Text that came without a message (a tool's output as the final answer) is one message, one delta."""
    item_id = new_item_id()
    frame.emit(MessageStarted(item_id, frame.agent))
    frame.emit(MessageDelta(item_id, text))
    message: Item = {
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }
    frame.emit(MessageCompleted(item_id, text), [NewItem(item_id, message)])


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
    by_input = failure.code == "guardrail_tripped" and type(error).__name__ == "InputGuardrailTripwireTriggered"
    return by_input or failure.code in ROLLBACK_CODES
