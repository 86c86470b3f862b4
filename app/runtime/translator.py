"""From what a model sends to the turn's events: one `ModelCall` watches one model call.

Synchronous and without I/O: pieces go in, events come out in the order in which they happened, every started
item is closed, also on failure. Only the top agent's items become history, when their response is whole.
"""

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from app.domain.conversation import NewItem
from app.domain.events import (
    Executor,
    MessageAnnotation,
    MessageCompleted,
    MessageDelta,
    MessageStarted,
    ReasoningCompleted,
    ReasoningDelta,
    ReasoningStarted,
    RefusalDelta,
    ToolCallCompleted,
    ToolCallDelta,
    ToolCallRequested,
    ToolCallStarted,
)
from app.domain.history import CALL_TYPES
from app.domain.ids import ItemId
from app.domain.json_types import Item, JsonObject
from app.domain.usage import UNREPORTED, TokenCounts
from app.runtime.outputs import classify, shown_output
from app.runtime.step import Step, ToolCall

if TYPE_CHECKING:
    from app.runtime.scope import RunFrame

HOSTED_OUTPUT_KEYS = ("output", "outputs", "results", "result")


@dataclass(slots=True)
class _Message:
    parts: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Call:
    call_id: str
    tool: str
    executor: Executor
    requested: bool = False


class ModelCall:
    """The observer of one model call (see `observer.ModelCallObserver` for the contract)."""

    def __init__(
        self, frame: "RunFrame", step: Step, *, model: str, upstream: str, handoffs: frozenset[str]
    ) -> None:
        self._frame = frame
        self._step = step
        self._model = model
        self._upstream = upstream
        self._handoffs = handoffs
        self._messages: dict[str, _Message] = {}
        self._reasoning: dict[str, list[str]] = {}
        self._calls: dict[str, _Call] = {}
        self._done: set[str] = set()

    # ids

    def claim_item_id(self, upstream_id: str | None) -> str:
        return self._frame.turn.ids.claim_item(upstream_id)

    def claim_call_id(self, upstream_id: str | None) -> str:
        return self._frame.turn.ids.claim_call(upstream_id)

    # pieces

    def text_delta(self, item_id: str, delta: str) -> None:
        if delta:
            message = self._messages.get(item_id) or self._message(item_id)
            message.parts.append(delta)
            self._frame.emit(MessageDelta(item_id, delta))

    def refusal_delta(self, item_id: str, delta: str) -> None:
        if delta:
            self._message(item_id).refusal.append(delta)
            self._frame.emit(RefusalDelta(item_id, delta))

    def annotation(self, item_id: str, annotation: JsonObject) -> None:
        self._message(item_id)
        self._frame.emit(MessageAnnotation(item_id, annotation))

    def reasoning_delta(self, item_id: str, kind: Literal["summary", "text"], delta: str) -> None:
        if not delta:
            return
        self._start_reasoning(item_id).append(delta)
        self._frame.emit(ReasoningDelta(item_id, kind, delta))

    def call_started(self, item_id: str, call_id: str, name: str) -> None:
        if name in self._handoffs or call_id in self._calls:
            return
        is_clients = self._frame.is_top and name in self._frame.turn.client_tools
        executor: Executor = "client" if is_clients else "server"
        self._calls[call_id] = _Call(call_id, name, executor)
        self._frame.emit(ToolCallStarted(item_id, call_id, name, self._frame.agent))

    def arguments_delta(self, call_id: str, delta: str) -> None:
        if delta and call_id in self._calls:
            self._frame.emit(ToolCallDelta(call_id, delta))

    def hosted_call_started(self, item_id: str, call_id: str, tool: str, executor: Executor) -> None:
        if call_id not in self._calls:
            self._calls[call_id] = _Call(call_id, tool, executor)
            self._frame.emit(ToolCallStarted(item_id, call_id, tool, self._frame.agent))

    # whole items

    def item_done(self, item_id: str, item: Item) -> None:
        if item_id in self._done:
            return
        self._done.add(item_id)
        match item.get("type"):
            case "message":
                self._message_done(item_id, item)
            case "reasoning":
                self._reasoning_done(item_id, item)
            case "function_call" | "custom_tool_call":
                self.call_started(item_id, item["call_id"], item["name"])
            case _:
                self._hosted_done(item_id, item)

    def warn(self, code: str, message: str) -> None:
        self._frame.warn(code, message)

    def request_failed(self, code: str) -> None:
        self._frame.turn.sink.upstream_failed(code)

    def attempt_failed(self, counts: TokenCounts | None) -> None:
        self._close_open()
        self._frame.spend(self._step, self._model, counts or UNREPORTED)

    async def completed(self, output: list[Item], counts: TokenCounts | None) -> None:
        self._frame.spend(self._step, self._model, counts or UNREPORTED)
        recorded: list[NewItem] = []
        requested: list[ToolCall] = []
        for item in output:
            item_id = item.get("id") or self.claim_item_id(None)
            self.item_done(item_id, item)
            self._frame.turn.made(item, self._upstream)
            recorded.append(NewItem(ItemId(item_id), item, origin=self._upstream))
            if item.get("type") in CALL_TYPES:
                call = self._request(item)
                if call is not None:
                    requested.append(call)
        self._close_open()
        if self._frame.is_top:
            self._frame.turn.record(recorded)
        self._frame.responded(self._step, requested)
        if requested:
            await self._frame.turn.sink.committed()

    def failed(self, counts: TokenCounts | None) -> None:
        self._close_open()
        self._frame.spend(self._step, self._model, counts or UNREPORTED)
        self._frame.close_step()

    # inside

    def _message(self, item_id: str) -> _Message:
        message = self._messages.get(item_id)
        if message is None:
            message = self._messages[item_id] = _Message()
            self._frame.emit(MessageStarted(item_id, self._frame.agent))
        return message

    def _start_reasoning(self, item_id: str) -> list[str]:
        parts = self._reasoning.get(item_id)
        if parts is None:
            parts = self._reasoning[item_id] = []
            self._frame.emit(ReasoningStarted(item_id, self._frame.agent))
        return parts

    def _message_done(self, item_id: str, item: Item) -> None:
        """Text that came without deltas is one delta; what the item says in the end is what counts."""
        text, refusal, annotations = _message_content(item)
        if not text and not refusal and item_id not in self._messages:
            return
        message = self._message(item_id)
        if not message.parts:
            self.text_delta(item_id, text)
            for annotation in annotations:
                self.annotation(item_id, annotation)
        if not message.refusal:
            self.refusal_delta(item_id, refusal)
        del self._messages[item_id]
        shown_text, shown_refusal = "".join(message.parts), "".join(message.refusal)
        self._frame.last_text = text or shown_text
        self._frame.emit(MessageCompleted(item_id, text or shown_text, refusal or shown_refusal or None))

    def _reasoning_done(self, item_id: str, item: Item) -> None:
        summary, text = _reasoning_texts(item)
        if not summary and not text and item_id not in self._reasoning:
            return
        parts = self._start_reasoning(item_id)
        if not parts:
            self.reasoning_delta(item_id, "summary", summary)
            self.reasoning_delta(item_id, "text", text)
        del self._reasoning[item_id]
        self._frame.emit(ReasoningCompleted(item_id, "".join(parts)))

    def _hosted_done(self, item_id: str, item: Item) -> None:
        """A tool that the provider ran: its request and its end are one fact."""
        tool = str(item.get("name") or item.get("type") or "tool").removesuffix("_call")
        known = next((c for c in self._calls.values() if c.call_id in (item_id, item.get("call_id"))), None)
        if known is None and not str(item.get("type", "")).endswith("_call"):
            return
        if known is None:
            self.hosted_call_started(item_id, item_id, tool, "provider")
            known = self._calls[item_id]
        arguments, arguments_text = _hosted_arguments(item)
        self._frame.emit(
            ToolCallRequested(
                known.call_id, known.tool, self._frame.agent, "provider", arguments, arguments_text
            )
        )
        output = next((item[k] for k in HOSTED_OUTPUT_KEYS if item.get(k) is not None), None)
        shown, truncated = shown_output(output, self._frame.turn.max_shown_output)
        error = item.get("error")
        failed = bool(error) or item.get("status") in ("failed", "incomplete")
        status, said = ("error", str(error or "the provider reports a failure")) if failed else classify(output)
        self._frame.emit(
            ToolCallCompleted(
                known.call_id,
                known.tool,
                status,
                output=shown,
                output_truncated=truncated,
                error=said,
            )
        )
        del self._calls[known.call_id]

    def _request(self, item: Item) -> ToolCall | None:
        call = self._calls.pop(item["call_id"], None)
        if call is None:
            return None
        arguments, text = _arguments(item)
        self._frame.emit(
            ToolCallRequested(call.call_id, call.tool, self._frame.agent, call.executor, arguments, text)
        )
        return ToolCall(call.call_id, call.tool, item, call.executor)

    def _close_open(self) -> None:
        """Close what is open as partial; a call whose arguments never came whole ends without a request."""
        for item_id, parts in self._reasoning.items():
            self._frame.emit(ReasoningCompleted(item_id, "".join(parts), partial=True))
        for item_id, message in self._messages.items():
            refusal = "".join(message.refusal) or None
            self._frame.emit(MessageCompleted(item_id, "".join(message.parts), refusal, partial=True))
        for call in self._calls.values():
            self._frame.emit(ToolCallCompleted(call.call_id, call.tool, "cancelled"))
        self._reasoning, self._messages, self._calls = {}, {}, {}


def _message_content(item: Item) -> tuple[str, str, list[JsonObject]]:
    text: list[str] = []
    refusal: list[str] = []
    annotations: list[JsonObject] = []
    content = item.get("content")
    if isinstance(content, str):
        return content, "", []
    for part in content or ():
        if part.get("type") == "refusal":
            refusal.append(part.get("refusal") or "")
        else:
            text.append(part.get("text") or "")
            annotations += part.get("annotations") or ()
    return "".join(text), "".join(refusal), annotations


def _reasoning_texts(item: Item) -> tuple[str, str]:
    summary = "\n\n".join(part.get("text") or "" for part in item.get("summary") or ())
    return summary, "".join(part.get("text") or "" for part in item.get("content") or ())


def _arguments(item: Item) -> tuple[JsonObject | None, str | None]:
    """The call's arguments as an object, or None and the raw text if they are none."""
    text = item.get("arguments", item.get("input"))
    try:
        parsed = json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        parsed = None
    return (parsed, None) if isinstance(parsed, dict) else (None, str(text))


def _hosted_arguments(item: Item) -> tuple[JsonObject | None, str | None]:
    for key in ("arguments", "action", "code", "queries"):
        value = item.get(key)
        if isinstance(value, dict):
            return value, None
        if key == "arguments" and isinstance(value, str):
            return _arguments(item)
        if value:
            return {key: value}, None
    return {}, None
