"""Compaction: before a turn, older exchanges of a conversation that has grown too far become a summary.

How far is told by the provider: the tokens of the newest model call. The newest exchanges stay as they are. A
Responses upstream compacts in its own way; elsewhere, and where it has none, the turn's own model is asked for
a summary. The history itself stays: a summary stands for its items until the turn that made it is undone.
"""

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import anyio
from agents import Model, ModelResponse, ModelSettings, ModelTracing
from anyio import to_thread

from app.domain.conversation import Compaction, NewItem, StoredItem
from app.domain.events import HistoryCompacted, HistoryCompacting
from app.domain.ids import ItemId, new_item_id
from app.domain.json_types import Item
from app.domain.ports import RunControl, RunJob
from app.domain.turn import now
from app.domain.usage import UNREPORTED, TokenCounts, Usage
from app.runtime.failures import UpstreamFailure, turn_error
from app.runtime.history import looked_through
from app.runtime.models.compact import compacted
from app.runtime.models.model import UpstreamModel
from app.runtime.observer import current_scope
from app.runtime.scope import RunFrame, TurnScope
from app.runtime.step import Step

logger = logging.getLogger(__name__)

KEPT_SHARE: Final = 0.25
"""The newest exchanges that make up no more of the history than this are left alone, and always the last."""
MAX_OUTPUT_CHARS: Final = 4000
"""How much of one tool's output goes into a summary's making."""
HEADING: Final = "Summary of the conversation so far:\n\n"
INSTRUCTIONS: Final = (
    "You compact conversations. You are given the older part of one, and your answer will stand in its "
    "place. Keep what later answers may need: what was asked for and decided, facts, names, numbers, "
    "identifiers, what tools returned, what is still open. Leave out greetings and repetition. Write the "
    "summary and nothing else."
)


@dataclass(frozen=True, slots=True)
class CompactionRules:
    """`at` is a share of the context window, None for never; `window_of` knows a model's, 0 for unknown."""

    at: float | None
    window_of: Callable[[str | None], int]

    def is_due(self, model: str | None, context_tokens: int | None) -> bool:
        window = self.window_of(model)
        return bool(self.at and window and context_tokens and context_tokens >= self.at * window)


class Compactor:
    """Gives each run the history that it shall see. `model_of` is the model that a turn begins with."""

    def __init__(self, rules: CompactionRules, model_of: Callable[[RunJob], Model]) -> None:
        self._rules = rules
        self._model_of = model_of
        self._without_own: set[str] = set()
        """Responses upstreams that turned out to have no compaction of their own."""

    async def history(self, job: RunJob, scope: TurnScope, control: RunControl) -> Sequence[StoredItem]:
        """What came before the turn, compacted if it is due. A failure leaves it as it is, with a warning."""
        readable = await self._readable(job, scope)
        if job.state is not None or not self._rules.is_due(job.prepared.model, job.context_tokens):
            return readable
        older, newer = await to_thread.run_sync(_split, readable, frozenset(s.id for s in job.history))
        if not older:
            return readable
        scope.sink.emit(HistoryCompacting())
        frame = _CompactionFrame(scope, job.prepared.agent)
        summary: list[NewItem] = []
        with anyio.CancelScope() as attempt:
            # Before the first step there is nothing to wait for: the run is told so when it begins.
            control.on_cancel(lambda mode: attempt.cancel() if mode == "after_step" else None)
            summary = await self._attempt(job, older, frame)
        if not summary:
            return readable
        return self._compacted(job, scope, frame, readable, older, newer, summary)

    async def _readable(self, job: RunJob, scope: TurnScope) -> Sequence[StoredItem]:
        """The history without what only another provider can read, and with what that stands for."""
        foreign = await looked_through(job.history, _of_providers, job.history)
        if not foreign:
            return job.history
        model = self._model_of(job)
        own = _responses_upstream(model)
        if own is not None and all(s.origin == own for s in foreign):
            return job.history
        if not job.unfolded:
            scope.top.warn("history_dropped", "Older history was compacted by another provider and is not sent")
            return job.history
        return job.unfolded

    async def _attempt(
        self, job: RunJob, older: Sequence[StoredItem], frame: "_CompactionFrame"
    ) -> list[NewItem]:
        token = current_scope.set(frame)
        try:
            return await self._made(self._model_of(job), older, frame)
        except Exception as error:  # noqa: BLE001
            # The boundary of a compaction: the turn goes on without, and fails by itself if it must.
            message = turn_error(error).message
            logger.info("compaction failed: %s", message)
            frame.warn("compaction_failed", f"The history could not be compacted: {message}")
            return []
        finally:
            current_scope.reset(token)

    async def _made(
        self, model: Model, older: Sequence[StoredItem], frame: "_CompactionFrame"
    ) -> list[NewItem]:
        """The items that shall stand for the older ones."""
        upstream = _responses_upstream(model)
        if isinstance(model, UpstreamModel) and upstream is not None and upstream not in self._without_own:
            by_provider = await self._by_provider(model, older, frame)
            if by_provider is not None:
                return by_provider
            self._without_own.add(upstream)
        return [await _summary(model, older)]

    async def _by_provider(
        self, model: UpstreamModel, older: Sequence[StoredItem], frame: "_CompactionFrame"
    ) -> list[NewItem] | None:
        upstream = model.upstream
        items = list(frame.native([stored.item for stored in older], upstream.name))
        await frame.permit(model.model, None, items, [])
        try:
            reply = await compacted(upstream, model.sent_as, items)
        except BaseException as error:
            if isinstance(error, UpstreamFailure):
                frame.turn.sink.upstream_failed(error.code)
            frame.count(model.model, UNREPORTED)
            raise
        if reply is None:
            return None
        frame.count(model.model, reply.counts or UNREPORTED)
        return [_claimed(frame.turn, item, upstream.name) for item in reply.output]

    def _compacted(
        self,
        job: RunJob,
        scope: TurnScope,
        frame: "_CompactionFrame",
        readable: Sequence[StoredItem],
        older: Sequence[StoredItem],
        newer: Sequence[StoredItem],
        summary: list[NewItem],
    ) -> Sequence[StoredItem]:
        """Report what was made; returns the history as it is now."""
        kept = {stored.id for stored in newer}
        gone = {stored.id for stored in older} | {stored.id for stored in job.history} - kept
        places = [_as_stored(new) for new in summary]
        first = next(i for i, stored in enumerate(readable) if stored.id not in kept)
        history = [*readable[:first], *places, *(s for s in readable[first:] if s.id in kept)]
        named = next((new for new in summary if new.item.get("type") == "compaction"), summary[-1])
        scope.sink.compacted(
            HistoryCompacted(
                items_before=len(readable),
                items_after=len(history),
                summary_item_id=named.id,
                context_tokens=job.context_tokens,
                model=frame.model,
                usage=frame.usage.as_json(),
            ),
            Compaction(tuple(summary), tuple(ItemId(item_id) for item_id in sorted(gone))),
        )
        return history


class _CompactionFrame(RunFrame):
    """The frame of the call that makes a summary: it shows nothing but warnings, and counts what it cost."""

    def __init__(self, turn: TurnScope, agent: str) -> None:
        super().__init__(turn, parent_call_id=None, silent=True)
        self.agent = agent
        self.usage = Usage()
        self.model: str | None = None

    def warn(self, code: str, message: str) -> None:
        self.turn.top.warn(code, message)

    def spend(self, step: Step, model: str, counts: TokenCounts) -> None:
        self.count(model, counts)

    def count(self, model: str, counts: TokenCounts) -> None:
        self.model = model
        cost = Usage(counts, 0, {model: counts})
        self.usage = self.usage.plus(cost, top_level=False)
        self.turn.sink.spent(cost, top_level=False)


def _of_providers(history: Sequence[StoredItem]) -> list[StoredItem]:
    """The compactions that providers have made."""
    return [stored for stored in history if stored.item.get("type") == "compaction"]


def _responses_upstream(model: Model) -> str | None:
    """The name of the model's upstream if it speaks Responses."""
    if isinstance(model, UpstreamModel) and model.upstream.wire == "responses":
        return model.upstream.name
    return None


def _claimed(turn: TurnScope, item: Item, upstream: str) -> NewItem:
    item_id = ItemId(turn.ids.claim_item(item.get("id")))
    if "id" in item:
        item = {**item, "id": item_id}
    turn.made({**item, "id": item_id}, upstream)
    return NewItem(item_id, item, upstream)


def _as_stored(new: NewItem) -> StoredItem:
    return StoredItem(new.id, None, now(), superseded=False, item=new.item, origin=new.origin, is_summary=True)


# --- which part ---------------------------------------------------------------------------------


def _split(
    history: Sequence[StoredItem], visible: frozenset[ItemId]
) -> tuple[list[StoredItem], list[StoredItem]]:
    """The exchanges to compact, whole, and what stays: the newest ones, and what the caller's system said.

    Items that are not `visible` stand behind an earlier compaction and are among the first in any case.
    """
    sizes = [len(json.dumps(stored.item, default=str)) for stored in history]
    room = KEPT_SHARE * sum(sizes)
    starts = [i for i in range(len(history)) if _begins_exchange(history, i)]
    cut = len(history)
    for start in reversed(starts):
        if cut < len(history) and sum(sizes[start:]) > room:
            break
        cut = start
    cut = max([cut, *(i + 1 for i, stored in enumerate(history) if stored.id not in visible)])
    older = [stored for stored in history[:cut] if stored.item.get("role") not in ("system", "developer")]
    if all(stored.is_summary for stored in older):
        return [], list(history)
    gone = {stored.id for stored in older}
    return older, [stored for stored in history if stored.id not in gone]


def _begins_exchange(history: Sequence[StoredItem], index: int) -> bool:
    if history[index].item.get("role") != "user" or history[index].is_summary:
        return False
    before = history[index - 1] if index else None
    return before is None or before.is_summary or before.item.get("role") != "user"


# --- our own summary ----------------------------------------------------------------------------


class NoSummary(Exception):
    """The model was asked for a summary and said nothing, or what is there cannot be read."""


async def _summary(model: Model, older: Sequence[StoredItem]) -> NewItem:
    """One message that stands for the older items, in the model's own words."""
    transcript = await to_thread.run_sync(_transcript, [stored.item for stored in older])
    question: Any = [{"type": "message", "role": "user", "content": transcript}]
    response = await model.get_response(
        INSTRUCTIONS,
        question,
        ModelSettings(),
        [],
        None,
        [],
        ModelTracing.DISABLED,
        previous_response_id=None,
        conversation_id=None,
        prompt=None,
    )
    text = _text_of(response)
    if not text:
        raise NoSummary
    content = [{"type": "input_text", "text": HEADING + text}]
    return NewItem(new_item_id(), {"type": "message", "role": "user", "content": content})


def _text_of(response: ModelResponse) -> str:
    items = [item if isinstance(item, dict) else item.model_dump(warnings=False) for item in response.output]
    return "\n\n".join(_said(item) for item in items if item.get("type") == "message").strip()


def _transcript(items: Sequence[Item]) -> str:
    """The items as text: a summary needs no wire's form, and no tools that its calls would need."""
    return "\n\n".join(line for item in items if (line := _line(item)))


def _line(item: Item) -> str:
    match item.get("type", "message"):
        case "message":
            return f"{str(item.get('role')).capitalize()}: {_said(item)}"
        case "function_call" | "custom_tool_call":
            return f"Assistant called {item.get('name')}: {item.get('arguments', item.get('input'))}"
        case "function_call_output" | "custom_tool_call_output":
            output = item.get("output")
            said = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False, default=str)
            cut = len(said) > MAX_OUTPUT_CHARS
            return f"Tool returned: {said[:MAX_OUTPUT_CHARS]}{' […]' if cut else ''}"
        case "compaction":
            raise NoSummary
        case _:
            return ""


def _said(item: Item) -> str:
    content = item.get("content")
    if isinstance(content, str):
        return content
    parts = [part for part in content or () if isinstance(part, dict)]
    return "\n".join(part.get("text") or part.get("refusal") or f"[{part.get('type')}]" for part in parts)
