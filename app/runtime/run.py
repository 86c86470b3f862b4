"""The SDK's runner at work for one run of a turn: drained, stopped, paused, ended.

The run's events come from the taps (see `observer`); the SDK's own stream is only drained, for the outputs
that no tap sees.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

from agents import Agent, RunResultStreaming, RunState
from agents.exceptions import UserError
from agents.items import HandoffOutputItem, MCPApprovalResponseItem, ToolCallOutputItem
from agents.result import RunResultBase
from agents.stream_events import RunItemStreamEvent, StreamEvent
from anyio import to_thread

from app.domain.conversation import NewItem
from app.domain.events import MessageCompleted, MessageDelta, MessageStarted
from app.domain.history import OUTPUT_TYPES, repaired
from app.domain.ids import new_item_id
from app.domain.json_types import Item
from app.domain.pause import Answers, PauseReason
from app.domain.ports import RunCompleted, RunControl, RunFailed, RunOutcome, RunPaused, RunStopped
from app.domain.turn import CancelMode, Turn, TurnError
from app.runtime import paused_state
from app.runtime.containment import exited
from app.runtime.failures import PolicyDenied
from app.runtime.hooks import close_unrun
from app.runtime.models.past import Past, expanded
from app.runtime.outputs import plain_json
from app.runtime.paused_state import Notes, PausedRun
from app.runtime.pauses import Interruptions, Rules
from app.runtime.plans import user_message
from app.runtime.scope import RunFrame, TurnScope
from app.runtime.workflow import WorkflowRun

UNWIND_S = 2.0
"""How long a cancelled run may take to let go of its upstream and tools."""

Start = Callable[[Agent[Any], Any, Any], RunResultStreaming]
"""Gets an agent, its input with a past in front (or the state to go on from) and the context."""


class Run:
    """One run; `start` starts the SDK's runner, `adopt` makes an agent one of the service's."""

    def __init__(
        self,
        start: Start,
        adopt: Callable[[Agent[Any]], None],
        turn: Turn,
        scope: TurnScope,
        control: RunControl,
        plan: WorkflowRun,
        past: Past,
        notes: Notes | None = None,
    ) -> None:
        self._start = start
        self._adopt = adopt
        self._request = turn.request
        self._scope = scope
        self._control = control
        self._plan = plan
        self._past = past
        self._result: RunResultStreaming | None = None
        self._tripped: str | None = None
        self._denied: PolicyDenied | None = None
        self._after_step = False
        self._rules = Rules(
            auto=turn.request.approvals == "auto", kept=notes.rules if notes is not None else ()
        )
        self._rounds = notes.rounds if notes is not None else 0
        scope.on_tripped = self._trip
        scope.on_denied = self._deny

    async def begin(self) -> RunOutcome:
        return await self._drive([self._past, *self._plan.input])

    async def go_on(self, state: RunState[Any], answers: Answers) -> RunOutcome:
        """Resume with the answers that the pause got."""
        Interruptions(self._scope, state, self._rules).answer(answers)
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
            elif self._request.stepwise and result.final_output is None:
                state = result.to_state()
                if self._scope.top.called_tools:
                    return await self._paused_after_step(state)
            else:
                return await self._ended(result)
            input = state

    async def _stream(self, input: Any) -> RunResultStreaming:
        return await self._drain(self._start(self._plan.agent, input, self._plan.context))

    async def _drain(self, result: RunResultStreaming) -> RunResultStreaming:
        """Follow a run to its end; whoever is cancelled here stops it and waits until it has let go."""
        self._result = result
        self._after_step = False
        if result.run_loop_task is not None:
            result.run_loop_task.add_done_callback(_let_go)
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
        self._check_not_left(result)
        return result

    def _check_not_left(self, result: RunResultStreaming) -> None:
        """Raises AgentCodeExited if the run was cancelled by nobody: a guardrail, a hook or instructions raised
        CancelledError, which the SDK takes for the end of the run."""
        task = result.run_loop_task
        asked = self._tripped is not None or self._control.cancel_mode is not None
        if task is not None and task.done() and task.cancelled() and not asked:
            raise exited(asyncio.CancelledError())

    def _drained(self, event: StreamEvent) -> None:
        """The SDK's stream is read for the outputs that no tap sees, and to know that a step is under way."""
        if self._request.stepwise and self._result is not None and not self._after_step:
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
            _show_input(result)
            return RunCompleted(None, plain_json(await self._plan.finish(result, self._more)))
        if not isinstance(output, str):
            return RunCompleted(None, plain_json(output))
        if output and output != frame.last_text:
            _say(frame, output)
        return RunCompleted(output, None)

    async def _more(self, agent: Agent[Any], input: str, *, context: Any = None) -> RunResultBase:
        """See `workflow.RunMore`: another run of the turn, after all that the turn has said so far."""
        self._adopt(agent)
        self._scope.record([NewItem(new_item_id(), user_message(input))])
        said = repaired(new.item for new in self._scope.items)
        result = self._start(agent, [self._past, *said], context)
        _show_input(await self._drain(result))
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
        model_input = [*self._past.items, *self._plan.input]
        return await to_thread.run_sync(paused_state.packed, state, model_input, notes)


def _let_go(task: asyncio.Task[Any]) -> None:
    """How a run's loop ends is read where it matters. One that is stopped may fail while it unwinds, at its
    upstream's end for instance: that is nobody's to handle, and no defect."""
    if not task.cancelled():
        task.exception()


async def _unwind(result: RunResultStreaming) -> None:
    """Stop a run and wait, under a bound, until it has let go: a cancel only asks."""
    result.cancel("immediate")
    task = result.run_loop_task
    if task is not None and not task.done():
        await asyncio.wait({task}, timeout=UNWIND_S)


def _show_input(result: RunResultStreaming) -> None:
    """The result goes to a workflow's own code: it has the input as items."""
    if not isinstance(result.input, str):
        result.input = result._original_input = expanded(result.input)


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
