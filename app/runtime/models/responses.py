"""The answer of a Responses server: events in, reports and items out.

Servers leave out ids, places and sequence numbers, and send items only when done, or only in the final
response, or both: see `open_items`. A text is shown by its deltas, else by the event that says it whole.
"""

from collections.abc import Callable
from typing import Any, Final, Literal

from app.domain.events import Executor
from app.domain.json_types import Item, JsonObject
from app.domain.usage import TokenCounts
from app.runtime.failures import UpstreamFailure, reported_failure, shown
from app.runtime.models.counts import merged_usage, token_counts
from app.runtime.models.json_frames import mended
from app.runtime.models.long_ids import without_long_ids
from app.runtime.models.open_items import OpenItems, in_final, in_order
from app.runtime.models.provider_errors import read_error, told_error
from app.runtime.models.reply import (
    SILENT_TYPES,
    Output,
    Reply,
    check_document,
    cut_short,
    protocol_failure,
)
from app.runtime.models.response_ends import failed, incomplete, without_type
from app.runtime.models.response_items import (
    CALLS,
    LOCAL_TOOLS,
    TAKEN,
    OpenItem,
    argument_text,
    as_list,
    as_text,
    call_text,
    called_by,
    fill_reasoning,
    item_type,
    objects,
    piece_of,
    text_of,
    whole_message,
    with_names,
)
from app.runtime.observer import ModelCallObserver

NO_TOOLS: Final = SILENT_TYPES | {"message", "mcp_approval_request", "tool_search_output"}


class ResponsesDecoder:
    """See `reply.Decoder`."""

    def __init__(self, observer: ModelCallObserver, *, max_item_size: int) -> None:
        self._observer = observer
        self._output = Output(observer, max_item_size)
        self._items = OpenItems(self._output, observer.claim_item_id)
        self._begun: str | None = None
        self.whole = self.done = False
        self._response: JsonObject | None = None
        self._usage: JsonObject = {}
        self._passed_over: set[str] = set()
        self._handlers: dict[str, Callable[[JsonObject], None]] = {
            "response.created": self._began,
            "response.queued": self._began,
            "response.in_progress": self._began,
            "response.output_text.delta": self._text_delta,
            "response.output_text.done": self._text_done,
            "response.content_part.done": self._part_done,
            "response.refusal.delta": self._refusal_delta,
            "response.refusal.done": self._refusal_done,
            "response.reasoning_text.delta": self._reasoning_text_delta,
            "response.reasoning_content.delta": self._reasoning_text_delta,
            "response.reasoning.delta": self._reasoning_text_delta,
            "response.reasoning_summary_text.delta": self._reasoning_summary_delta,
            "response.reasoning_summary.delta": self._reasoning_summary_delta,
            "response.reasoning_summary_part.added": self._summary_part_added,
            "response.function_call_arguments.delta": self._arguments_delta,
            "response.custom_tool_call_input.delta": self._arguments_delta,
            "response.function_call_arguments.done": self._arguments_done,
            "response.custom_tool_call_input.done": self._arguments_done,
            "response.output_text.annotation.added": self._annotation_added,
            "response.output_item.added": self._item_added,
            "response.output_item.done": self._item_done,
            "response.completed": self._completed,
            "response.done": self._completed,
            "response.failed": self._failed,
            "response.cancelled": self._failed,
            "response.canceled": self._failed,
            "response.incomplete": self._incomplete,
            "response.error": self._error,
            "error": self._error,
        }

    @property
    def shown(self) -> bool:
        return self._output.shown

    @property
    def counts(self) -> TokenCounts | None:
        return token_counts(self._usage)

    def end(self) -> None:
        """Some relays close Responses streams as Chat Completions are closed; the events tell the end."""

    def accept(self) -> None:
        self._output.release()

    def feed(self, name: bytes, frame: JsonObject) -> None:
        kind = frame.get("type") or name.decode("utf-8", "replace")
        handler = self._handlers.get(kind)
        if handler is not None:
            handler(frame)
        elif not kind and self.feed_whole(frame):
            return
        elif not kind.startswith("response.") and (error := told_error(frame)) is not None:
            raise reported_failure(error)

    def feed_whole(self, body: Any) -> bool:
        """A whole response is what `response.completed` would carry."""
        is_response = isinstance(body, dict) and ("output" in body or body.get("object") == "response")
        if not is_response:
            check_document(body)
            return False
        if (status := body.get("status")) in ("queued", "in_progress"):
            raise protocol_failure(f"a response that is still {status}")
        self._completed({"response": body})
        return True

    # pieces

    def _text_delta(self, event: JsonObject) -> None:
        self._say(self._items.of_delta(event, "message"), piece_of(event))

    def _text_done(self, event: JsonObject) -> None:
        item = self._items.of_end(event, "message")
        if item is not None and not item.text.size:
            self._say(item, text_of(event.get("text")))

    def _part_done(self, event: JsonObject) -> None:
        part = event.get("part")
        if isinstance(part, dict) and part.get("type") in ("output_text", "text"):
            self._text_done({**event, "text": part.get("text")})
        elif isinstance(part, dict) and part.get("type") == "refusal":
            self._refusal_done({**event, "refusal": part.get("refusal")})

    def _refusal_delta(self, event: JsonObject) -> None:
        self._refuse(self._items.of_delta(event, "message"), piece_of(event))

    def _refusal_done(self, event: JsonObject) -> None:
        item = self._items.of_end(event, "message")
        if item is not None and not item.refusal.size:
            self._refuse(item, as_text(event.get("refusal")))

    def _say(self, item: OpenItem | None, piece: str) -> None:
        if item is not None and (piece := item.text.add(piece)):
            self._output.show()
            self._observer.text_delta(item.item_id, piece)

    def _refuse(self, item: OpenItem | None, piece: str) -> None:
        if item is not None and (piece := item.refusal.add(piece)):
            self._output.show()
            self._observer.refusal_delta(item.item_id, piece)

    def _annotation_added(self, event: JsonObject) -> None:
        annotation = event.get("annotation")
        item = self._items.of_delta(event, "message")
        if isinstance(annotation, dict) and item is not None:
            item.annotations.append(mended(annotation))
            self._output.show()
            self._observer.annotation(item.item_id, item.annotations[-1])

    def _reasoning_text_delta(self, event: JsonObject) -> None:
        self._reason(event, "text", piece_of(event))

    def _reasoning_summary_delta(self, event: JsonObject) -> None:
        self._reason(event, "summary", piece_of(event))

    def _summary_part_added(self, event: JsonObject) -> None:
        """The parts of a summary are paragraphs."""
        if event.get("summary_index"):
            self._reason(event, "summary", "\n\n")

    def _reason(self, event: JsonObject, kind: Literal["summary", "text"], piece: str) -> None:
        item = self._items.of_delta(event, "reasoning")
        if item is None:
            return
        item.kind = kind
        if piece := item.text.add(piece):
            self._output.shown = True
            self._observer.reasoning_delta(item.item_id, kind, piece)

    def _arguments_delta(self, event: JsonObject) -> None:
        self._argue(self._items.of_delta(event, called_by(event)), piece_of(event))

    def _arguments_done(self, event: JsonObject) -> None:
        item = self._items.of_end(event, called_by(event))
        if item is None:
            return
        self._announce(item, event)
        if not item.text.size:
            self._argue(item, argument_text(event.get(CALLS[item.type])))

    def _argue(self, item: OpenItem | None, piece: str) -> None:
        if item is not None and (piece := item.text.add(piece)) and item.announced:
            self._observer.arguments_delta(item.call_id, piece)

    # items

    def _item_added(self, event: JsonObject) -> None:
        if (taken := self._taken(event.get("item"))) is not None:
            kind, item = taken
            opened = self._items.added(event, kind, item) or self._items.open(event, kind, item)
            opened.added = True
            self._announce(opened, item)

    def _item_done(self, event: JsonObject) -> None:
        taken = self._taken(event.get("item"))
        if taken is not None and not self._items.is_repeated(event, taken[1]):
            kind, item = taken
            self._close(self._items.done(event, kind, item) or self._items.open(event, kind, item), item)

    def _taken(self, item: Any) -> tuple[str, JsonObject] | None:
        """The item with its type; None if it is none that a model can answer with, which is told once."""
        kind = item_type(item)
        if kind is None:
            return None
        call_id = item.get("call_id")
        if kind in TAKEN and (kind in CALLS or not call_id or not self._items.has_called(call_id)):
            return kind, item
        if kind not in self._passed_over:
            self._passed_over.add(kind)
            told = shown(mended(kind)[:60])
            self._observer.warn("unknown_item", f"The model's provider sent an item of no known kind: {told!r}")
        return None

    def _announce(self, opened: OpenItem, item: JsonObject) -> None:
        """Report that a call has begun, once; other items begin with their first piece."""
        if opened.announced or opened.type in NO_TOOLS:
            return
        if opened.type in CALLS:
            self._announce_call(opened, item)
        elif opened.type.endswith("_call"):
            opened.announced = True
            self._output.show()
            executor: Executor = "server" if opened.type in LOCAL_TOOLS else "provider"
            if executor == "server":
                opened.upstream_call_id = as_text(item.get("call_id")) or None
                opened.call_id = self._observer.claim_call_id(opened.upstream_call_id)
            else:
                opened.call_id = opened.item_id
            name = as_text(item.get("name")) or LOCAL_TOOLS.get(opened.type)
            tool = mended(name or opened.type.removesuffix("_call"))
            self._observer.hosted_call_started(opened.item_id, opened.call_id, tool, executor)

    def _announce_call(self, opened: OpenItem, item: JsonObject) -> None:
        opened.upstream_call_id = as_text(item.get("call_id")) or opened.upstream_call_id
        name = mended(as_text(item.get("name"))).strip()
        if not name:
            return
        opened.announced = True
        opened.name = name
        opened.call_id = self._observer.claim_call_id(mended(opened.upstream_call_id))
        self._output.show()
        self._observer.call_started(opened.item_id, opened.call_id, name)
        if opened.text.value:
            self._observer.arguments_delta(opened.call_id, opened.text.value)

    def _close(self, opened: OpenItem, item: JsonObject) -> None:
        """An item is whole: what its pieces said fills what it leaves out."""
        whole = with_names(mended({**item, "type": opened.type, "id": opened.item_id}))
        whole = without_long_ids(whole)
        self._announce(opened, item)
        self._settle_pieces(opened)
        if opened.type in CALLS:
            self._close_call(opened, whole)
        elif opened.type in LOCAL_TOOLS:
            whole["call_id"] = opened.call_id
        elif opened.type == "message":
            whole = whole_message(opened, whole)
        elif opened.type == "reasoning":
            fill_reasoning(opened, whole)
        opened.item, opened.said = whole, item
        if opened.type != "message" or whole["content"]:
            self._check_size(whole)
            self._output.done(whole)

    def _settle_pieces(self, opened: OpenItem) -> None:
        if owed := opened.text.finish():
            match opened.type:
                case "message":
                    self._observer.text_delta(opened.item_id, owed)
                case "reasoning":
                    self._observer.reasoning_delta(opened.item_id, opened.kind, owed)
                case _ if opened.announced:
                    self._observer.arguments_delta(opened.call_id, owed)
        if owed := opened.refusal.finish():
            self._observer.refusal_delta(opened.item_id, owed)

    def _close_call(self, opened: OpenItem, whole: Item) -> None:
        if not opened.announced:
            raise protocol_failure("a tool call without a name")
        text = call_text(opened, whole)
        if opened.type == "function_call" and not opened.text.value:
            self._observer.arguments_delta(opened.call_id, text)
        # As it began, so it ends: its name and its id were told.
        whole |= {"call_id": opened.call_id, "name": opened.name, CALLS[opened.type]: text}

    def _check_size(self, item: Item) -> None:
        content = item.get("content") or item.get("arguments") or item.get("input") or ""
        parts = content if isinstance(content, list) else [{"text": content}]
        size = sum(len(as_text(p.get("text"))) for p in objects(parts))
        if size > self._output.max_item_size:
            raise self._output.too_large()

    # the end

    def _began(self, event: JsonObject) -> None:
        """Where a relay asks again after a failure, a second response begins within the stream."""
        response = self._told(event)
        if response.get("status") in ("failed", "cancelled"):
            self._failed(event)
        response_id = as_text(response.get("id"))
        if event.get("type") == "response.created" and response_id:
            if self._begun not in (None, response_id):
                if self.shown:
                    raise protocol_failure("a second response began within it")
                self._items.clear()
            self._begun = response_id

    def _completed(self, event: JsonObject) -> None:
        response = self._told(event)
        match response.get("status"):
            case "incomplete":
                self._incomplete(event)
            case "failed" | "cancelled":
                self._failed(event)
            case _ if response.get("error"):
                self._failed(event)
        self._response = response
        self.whole = self.done = True

    def _failed(self, event: JsonObject) -> None:
        raise self._counted(failed(self._told(event), event))

    def _incomplete(self, event: JsonObject) -> None:
        raise self._counted(incomplete(self._told(event)))

    def _counted(self, failure: UpstreamFailure) -> UpstreamFailure:
        failure.counts = self.counts
        return failure

    def _told(self, event: JsonObject) -> JsonObject:
        """The response of an event about it, and what it has cost so far."""
        response = event.get("response")
        response = response if isinstance(response, dict) else event
        for source in (event, response):
            self._usage = merged_usage(self._usage, source.get("usage"))
        return response

    def _error(self, event: JsonObject) -> None:
        raise reported_failure(read_error(event.get("error") or without_type(event)))

    def finish(self) -> Reply:
        if self._response is None:
            raise cut_short("it ended without a final event")
        self._take_final(as_list(self._response.get("output")))
        for opened in self._items.all:
            if opened.item is None and (opened.text.size or opened.refusal.size or opened.announced):
                self._close(opened, {"type": opened.type, "status": "completed"})
        if not self._items.all and (text := as_text(self._response.get("output_text"))):
            self._close(self._items.open({}, "message", {}), {"content": text})
        response_id, model = (as_text(mended(self._response.get(k))) or None for k in ("id", "model"))
        whole = in_order(self._items.all)
        said = [item for item in whole if item["type"] != "message" or item["content"]]
        return Reply(said, self.counts, response_id, model)

    def _take_final(self, output: list[Any]) -> None:
        """Items that only the final response holds; the others were reported when they were done."""
        unmatched = list(self._items.all)
        for place, item in enumerate(output):
            taken = self._taken(item)
            if taken is None:
                continue
            kind, item = taken
            match = in_final(unmatched, place, item, kind)
            if match is None:
                match = self._items.open({"output_index": place}, kind, item)
            else:
                unmatched.remove(match)
            match.index = place
            if match.item is None:
                self._close(match, item)
