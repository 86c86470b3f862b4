"""The answer of a Chat Completions server: chunks in, reports and items out.

Chunks are read by what they hold, never by what the API's page says they hold: any field may be missing, null,
doubled, of another type, early or late. Only one thing is asked of a stream: a finish with a reason.
"""

from typing import Any, Final, Literal

from app.domain.json_types import Item, JsonObject
from app.domain.usage import TokenCounts
from app.runtime.failures import reported_failure
from app.runtime.models.chat_calls import CallAssembler
from app.runtime.models.counts import merged_usage, token_counts
from app.runtime.models.finish_reasons import CALLING, finish_failure, finish_reason
from app.runtime.models.json_frames import as_index, mended
from app.runtime.models.provider_errors import read_error, told_error
from app.runtime.models.reply import Output, Reply, Text, check_document, cut_short
from app.runtime.models.thought_details import DETAIL_FIELDS, add_details
from app.runtime.observer import ModelCallObserver

REASONING_FIELDS: Final = (
    "reasoning_content",
    "reasoning",
    "reasoning_text",
    "thinking",
    "thought",
    *DETAIL_FIELDS,
)
_PLAIN_DELTA: Final = frozenset({"content", "role"})
_TEXT_KEYS: Final = ("text", "thinking", "content", "reasoning", "summary", "value")
Kind = Literal["summary", "text"]


class _Reasoning:
    __slots__ = ("details", "details_size", "field", "item_id", "kind", "text")

    def __init__(self, item_id: str, kind: Kind, field: str, text: Text) -> None:
        self.item_id = item_id
        self.kind = kind
        self.field = field
        self.text = text
        self.details: dict[str, list[JsonObject]] = {}
        self.details_size = 0


class _Message:
    __slots__ = ("annotations", "item_id", "refusal", "shown", "text")

    def __init__(self, item_id: str, output: Output) -> None:
        self.item_id = item_id
        self.text = Text(output)
        self.refusal = Text(output)
        self.annotations: list[JsonObject] = []
        self.shown = False


class ChatDecoder:
    """See `reply.Decoder`. Items come in the order in which they began."""

    def __init__(self, observer: ModelCallObserver, *, upstream: str, max_item_size: int) -> None:
        self._observer = observer
        self._upstream = upstream
        self._output = Output(observer, max_item_size)
        self._calls = CallAssembler(self._output, upstream)
        self._reasoning: _Reasoning | None = None
        self._message: _Message | None = None
        self._usage: JsonObject = {}
        self._choice_index: int | None = None
        self._came_in_pieces = False
        self.whole = self.done = False
        self._finish: str | None = None
        self._id: str | None = None
        self._model: str | None = None

    @property
    def shown(self) -> bool:
        return self._output.shown

    @property
    def counts(self) -> TokenCounts | None:
        return token_counts(self._usage)

    def end(self) -> None:
        self.done = True

    def accept(self) -> None:
        self._output.release()

    # frames

    def feed(self, name: bytes, frame: JsonObject) -> None:
        if frame.get("error") or name == b"error" or frame.get("object") == "error":
            raise reported_failure(read_error(frame))
        choices = frame.get("choices")
        if not choices and (error := told_error(frame)) is not None:
            raise reported_failure(error)
        if usage := frame.get("usage"):
            self._count(usage)
        if isinstance(more := frame.get("x_groq"), dict):
            self._count(more.get("usage"))
        if self._id is None:
            self._id, self._model = _text_or_none(frame.get("id")), _text_or_none(frame.get("model"))
        for choice in [choices] if isinstance(choices, dict) else choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                self._choice(choice)

    def feed_whole(self, body: Any) -> bool:
        """A whole `chat.completion` is one frame whose delta is called `message`."""
        if not isinstance(body, dict) or not body.get("choices") or body.get("error"):
            check_document(body)
            return False
        self.feed(b"", body)
        return True

    def _count(self, usage: Any) -> None:
        self._usage = merged_usage(self._usage, usage)

    def _choice(self, choice: JsonObject) -> None:
        """Only one choice was asked for: the first that comes, whatever its number."""
        if choice.get("error"):
            raise reported_failure(read_error(choice["error"]))
        if usage := choice.get("usage"):
            self._count(usage)
        index = as_index(choice.get("index")) or 0
        if self._choice_index is None:
            self._choice_index = index
        if index == self._choice_index:
            self._pieces(choice)
            if reason := finish_reason(choice.get("finish_reason")):
                self._finish = reason
                self.whole = True

    def _pieces(self, choice: JsonObject) -> None:
        """What a choice brings. A message behind the pieces that it was sent in says all of them again."""
        if isinstance(delta := choice.get("delta"), dict) and delta:
            if not self._came_in_pieces:
                self._came_in_pieces = any(v for k, v in delta.items() if k != "role")
            self._delta(delta)
        elif isinstance(message := choice.get("message"), dict) and not self._came_in_pieces:
            self._delta(message)
        elif isinstance(text := choice.get("text"), str):
            self._text(text)

    def _delta(self, delta: JsonObject) -> None:
        content = delta.get("content")
        if isinstance(content, str) and _PLAIN_DELTA.issuperset(delta):
            self._text(content)  # nearly every delta is this
            return
        if delta.get("error"):
            raise reported_failure(read_error(delta["error"]))
        if usage := delta.get("usage"):
            self._count(usage)
        for field in REASONING_FIELDS:
            if piece := delta.get(field):
                self._reason(_thought(piece), "text", field if isinstance(piece, str) else "")
                break
        for field in DETAIL_FIELDS:
            if isinstance(details := delta.get(field), list) and details:
                self._keep(field, details)
        if content:
            self._blocks(content)
        if refusal := delta.get("refusal"):
            self._refuse(_thought(refusal))
        if annotations := delta.get("annotations"):
            self._annotate(annotations)
        if entries := delta.get("tool_calls"):
            self._call(entries if isinstance(entries, list) else [entries])
        if legacy := delta.get("function_call"):
            self._call([{"index": "function_call", "function": legacy}])

    # content

    def _text(self, piece: str) -> None:
        message = self._message
        if message is None:
            if not piece:
                return
            message = self._open_message()
        if piece := message.text.add(piece):
            if not message.shown:
                self._show(message)
            self._observer.text_delta(message.item_id, piece)

    def _refuse(self, piece: str) -> None:
        message = self._message or self._open_message()
        if piece := message.refusal.add(piece):
            self._show(message)
            self._observer.refusal_delta(message.item_id, piece)

    def _annotate(self, annotations: Any) -> None:
        message = self._message or self._open_message()
        for annotation in annotations if isinstance(annotations, list) else ():
            if isinstance(annotation, dict):
                flat = _flat_annotation(mended(annotation))
                message.annotations.append(flat)
                self._show(message)
                self._observer.annotation(message.item_id, flat)

    def _reason(self, piece: str, kind: Kind, field: str) -> None:
        if not piece:
            return
        reasoning = self._reasoning or self._open_reasoning(kind, field)
        reasoning.field = reasoning.field or field
        if piece := reasoning.text.add(piece):
            self._output.shown = True
            self._observer.reasoning_delta(reasoning.item_id, reasoning.kind, piece)

    def _keep(self, field: str, details: list[Any]) -> None:
        reasoning = self._reasoning or self._open_reasoning("text", "")
        reasoning.details_size += add_details(reasoning.details.setdefault(field, []), mended(details))
        if reasoning.details_size > self._output.max_item_size:
            raise self._output.too_large()

    def _blocks(self, blocks: Any) -> None:
        """Content as typed blocks (Databricks, Mistral): text, reasoning with a summary, thinking, refusal."""
        for block in blocks if isinstance(blocks, list) else [blocks]:
            if isinstance(block, str):
                self._text(block)
            elif isinstance(block, dict):
                self._block(block)

    def _block(self, block: JsonObject) -> None:
        match block.get("type"):
            case "reasoning" if block.get("summary"):
                self._reason(_thought(block["summary"]), "summary", "")
            case "reasoning" | "thinking" | "reasoning_text":
                self._reason(_thought(block), "text", "")
            case "refusal":
                self._refuse(_thought(block.get("refusal")))
            case "tool_use" | "tool_call":
                self._call([block])
            case _:
                self._text(_thought(block))

    def _call(self, entries: list[Any]) -> None:
        self._close_reasoning()
        self._close_message()
        for entry in entries:
            self._calls.feed(entry)

    # items

    def _open_message(self) -> _Message:
        self._message = _Message(self._observer.claim_item_id(None), self._output)
        return self._message

    def _show(self, message: _Message) -> None:
        """Something of a message is shown: what was thought before it is whole."""
        if not message.shown:
            message.shown = self._output.shown = True
            self._close_reasoning()
            self._output.release()

    def _open_reasoning(self, kind: Kind, field: str) -> _Reasoning:
        item_id = self._observer.claim_item_id(None)
        self._reasoning = _Reasoning(item_id, kind, field, Text(self._output))
        return self._reasoning

    def _close_reasoning(self) -> None:
        reasoning, self._reasoning = self._reasoning, None
        if reasoning is None:
            return
        if owed := reasoning.text.finish():
            self._observer.reasoning_delta(reasoning.item_id, reasoning.kind, owed)
        self._output.done(self._reasoning_item(reasoning))

    def _reasoning_item(self, reasoning: _Reasoning) -> Item:
        text = reasoning.text.value
        summary = [{"type": "summary_text", "text": text}] if reasoning.kind == "summary" else []
        item: Item = {"type": "reasoning", "id": reasoning.item_id, "summary": summary}
        if reasoning.kind == "text":
            item["content"] = [{"type": "reasoning_text", "text": text}] if text else []
        item["provider_data"] = {"upstream": self._upstream, "field": reasoning.field}
        if reasoning.details:
            item["provider_data"]["details"] = reasoning.details
        return item

    def _close_message(self) -> None:
        message, self._message = self._message, None
        if message is None:
            return
        if owed := message.text.finish():
            self._observer.text_delta(message.item_id, owed)
        if owed := message.refusal.finish():
            self._observer.refusal_delta(message.item_id, owed)
        content: list[JsonObject] = []
        if text := message.text.value:
            content.append({"type": "output_text", "text": text, "annotations": message.annotations})
        if refusal := message.refusal.value:
            content.append({"type": "refusal", "refusal": refusal})
        if content:
            item = {"type": "message", "id": message.item_id, "role": "assistant", "status": "completed"}
            self._output.done(item | {"content": content})

    # the end

    def finish(self) -> Reply:
        counts = self.counts
        if self._finish is None:
            raise cut_short("it ended without a finish reason")
        if failure := finish_failure(self._finish):
            failure.counts = counts
            raise failure
        self._close_reasoning()
        self._close_message()
        calls = self._calls.finish()
        if self._finish in CALLING and not calls:
            raise cut_short("it announces tool calls and holds none")
        for item in calls:
            self._output.done(item)
        return Reply(self._output.items, counts, self._id, self._model)


def _text_or_none(value: Any) -> str | None:
    return mended(value) if isinstance(value, str) and value else None


def _thought(value: Any) -> str:
    """The text of whatever shape a piece of thought has."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(_thought(part) for part in value)
    if isinstance(value, dict):
        return next((_thought(value[k]) for k in _TEXT_KEYS if value.get(k)), "")
    return ""


def _flat_annotation(annotation: JsonObject) -> JsonObject:
    """Chat Completions nests what Responses has flat: `{type: url_citation, url_citation: {…}}`."""
    kind = annotation.get("type")
    nested = annotation.get(kind) if isinstance(kind, str) else None
    return {"type": kind, **nested} if isinstance(nested, dict) else annotation
