"""The answer of a Responses server: events in, reports and items out.

Items are found by their id, by their place, or as the one that is open: servers leave out ids, places and
sequence numbers, and send items only when done, or only in the final response, or both.
"""

from collections.abc import Callable
from typing import Any, Final, Literal

from app.domain.events import Executor
from app.domain.json_types import Item, JsonObject
from app.domain.usage import TokenCounts
from app.runtime.failures import UpstreamFailure, reported_failure
from app.runtime.models.call_arguments import readable
from app.runtime.models.counts import token_counts
from app.runtime.models.json_frames import dumps, mended
from app.runtime.models.long_ids import without_long_ids
from app.runtime.models.provider_errors import read_error
from app.runtime.models.reply import SILENT_TYPES, Output, Reply, Text, cut_short, protocol_failure
from app.runtime.models.response_items import (
    OpenItem,
    as_text,
    fill_reasoning,
    objects,
    piece_of,
    usable_id,
    whole_message,
)
from app.runtime.observer import ModelCallObserver

CALLS: Final = {"function_call": "arguments", "custom_tool_call": "input"}
"""Types of calls that an SDK tool answers, and where their input stands."""
LOCAL_TOOLS: Final = {
    "computer_call": "computer",
    "local_shell_call": "local_shell",
    "shell_call": "shell",
    "apply_patch_call": "apply_patch",
}
"""Calls of the provider's own shapes that are run here."""
NO_TOOLS: Final = SILENT_TYPES | {"message", "mcp_list_tools", "mcp_approval_request", "tool_search_output"}


class ResponsesDecoder:
    """See `reply.Decoder`."""

    def __init__(self, observer: ModelCallObserver, *, max_item_size: int) -> None:
        self._observer = observer
        self._output = Output(observer, max_item_size)
        self._items: list[OpenItem] = []
        self._by_id: dict[str, OpenItem] = {}
        self._by_index: dict[int, OpenItem] = {}
        self._response: JsonObject | None = None
        self._counts: TokenCounts | None = None
        self._handlers: dict[str, Callable[[JsonObject], None]] = {
            "response.output_text.delta": self._text_delta,
            "response.refusal.delta": self._refusal_delta,
            "response.reasoning_text.delta": self._reasoning_text_delta,
            "response.reasoning_summary_text.delta": self._reasoning_summary_delta,
            "response.reasoning_summary_part.added": self._summary_part_added,
            "response.function_call_arguments.delta": self._arguments_delta,
            "response.custom_tool_call_input.delta": self._arguments_delta,
            "response.output_text.annotation.added": self._annotation_added,
            "response.output_item.added": self._item_added,
            "response.output_item.done": self._item_done,
            "response.completed": self._completed,
            "response.done": self._completed,
            "response.failed": self._failed,
            "response.cancelled": self._failed,
            "response.incomplete": self._incomplete,
            "response.error": self._error,
            "error": self._error,
        }

    @property
    def shown(self) -> bool:
        return self._output.shown

    @property
    def whole(self) -> bool:
        return self._response is not None

    @property
    def done(self) -> bool:
        return self._response is not None

    @property
    def counts(self) -> TokenCounts | None:
        return self._counts

    def end(self) -> None:
        """Some relays close Responses streams as Chat Completions are closed; the events tell the end."""

    def accept(self) -> None:
        self._output.release()

    def feed(self, name: bytes, frame: Any) -> None:
        if not isinstance(frame, dict):
            if frame is None:
                return
            raise protocol_failure("a frame that is no object")
        kind = frame.get("type") or name.decode("utf-8", "replace")
        handler = self._handlers.get(kind)
        if handler is not None:
            handler(frame)
        elif frame.get("error") and not kind.startswith("response."):
            self._error(frame)

    def feed_whole(self, body: Any) -> bool:
        """A whole response is what `response.completed` would carry."""
        if not isinstance(body, dict) or not isinstance(body.get("output"), list):
            return False
        self._completed({"response": body})
        return True

    # pieces

    def _text_delta(self, event: JsonObject) -> None:
        item = self._by_id.get(event.get("item_id", "")) or self._find(event, "message")
        if piece := item.text.add(piece_of(event)):
            self._show()
            self._observer.text_delta(item.item_id, piece)

    def _refusal_delta(self, event: JsonObject) -> None:
        item = self._find(event, "message")
        if piece := item.refusal.add(piece_of(event)):
            self._show()
            self._observer.refusal_delta(item.item_id, piece)

    def _annotation_added(self, event: JsonObject) -> None:
        annotation = event.get("annotation")
        if isinstance(annotation, dict):
            item = self._find(event, "message")
            item.annotations.append(mended(annotation))
            self._show()
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
        item = self._find(event, "reasoning")
        item.kind = kind
        if piece := item.text.add(piece):
            self._output.shown = True
            self._observer.reasoning_delta(item.item_id, kind, piece)

    def _arguments_delta(self, event: JsonObject) -> None:
        kind = "custom_tool_call" if "custom" in str(event.get("type")) else "function_call"
        item = self._find(event, kind)
        piece = item.text.add(piece_of(event))
        if item.announced and piece:
            self._observer.arguments_delta(item.call_id, piece)

    def _show(self) -> None:
        self._output.shown = True
        self._output.release()

    # items

    def _item_added(self, event: JsonObject) -> None:
        item = event.get("item")
        if isinstance(item, dict) and isinstance(item.get("type"), str):
            known = self._known(event, item)
            self._announce(known or self._open(event, item["type"], item), item)

    def _item_done(self, event: JsonObject) -> None:
        item = event.get("item")
        if isinstance(item, dict) and isinstance(item.get("type"), str):
            known = self._known(event, item)
            self._close(known or self._open(event, item["type"], item), item)

    def _known(self, event: JsonObject, item: JsonObject) -> OpenItem | None:
        """The open item that an event about a whole item means."""
        found = self._by_id.get(usable_id(item.get("id")) or "")
        if found is None and isinstance(place := event.get("output_index"), int):
            found = self._by_index.get(place)
        if found is None and (call_id := item.get("call_id")):
            found = next((o for o in self._items if o.upstream_call_id == call_id), None)
        if found is None and event.get("output_index") is None and not usable_id(item.get("id")):
            found = next((o for o in self._items if o.item is None and o.type == item["type"]), None)
        return found if found is not None and found.item is None and found.type == item["type"] else None

    def _find(self, event: JsonObject, kind: str) -> OpenItem:
        """The open item that a delta belongs to; one that was never announced begins here."""
        found = self._by_id.get(usable_id(event.get("item_id")) or "")
        if found is None and isinstance(place := event.get("output_index"), int):
            found = self._by_index.get(place)
            if found is None:
                return self._open(event, kind, {"id": event.get("item_id")})
        if found is None or found.type != kind:
            found = next((o for o in reversed(self._items) if o.item is None and o.type == kind), None)
        return found or self._open(event, kind, {"id": event.get("item_id")})

    def _open(self, event: JsonObject, kind: str, item: JsonObject) -> OpenItem:
        upstream_id = usable_id(item.get("id"))
        place = event.get("output_index")
        text, refusal = Text(self._output), Text(self._output)
        opened = OpenItem(
            kind,
            self._observer.claim_item_id(upstream_id),
            upstream_id,
            place if isinstance(place, int) else None,
            text,
            refusal,
        )
        self._items.append(opened)
        if upstream_id is not None:
            self._by_id[upstream_id] = opened
        if opened.index is not None:
            self._by_index[opened.index] = opened
        return opened

    def _announce(self, opened: OpenItem, item: JsonObject) -> None:
        """Report that a call has begun, once; other items begin with their first piece."""
        if opened.announced or opened.type in NO_TOOLS:
            return
        if opened.type in CALLS:
            self._announce_call(opened, item)
        elif opened.type.endswith("_call"):
            opened.announced = True
            self._show()
            executor: Executor = "server" if opened.type in LOCAL_TOOLS else "provider"
            if executor == "server":
                opened.upstream_call_id = as_text(item.get("call_id")) or None
                opened.call_id = self._observer.claim_call_id(opened.upstream_call_id)
            else:
                opened.call_id = opened.item_id
            tool = (
                as_text(item.get("name")) or LOCAL_TOOLS.get(opened.type) or opened.type.removesuffix("_call")
            )
            self._observer.hosted_call_started(opened.item_id, opened.call_id, tool, executor)

    def _announce_call(self, opened: OpenItem, item: JsonObject) -> None:
        name = as_text(item.get("name"))
        if not name:
            return
        opened.announced = True
        opened.name = name
        opened.upstream_call_id = as_text(item.get("call_id")) or None
        opened.call_id = self._observer.claim_call_id(opened.upstream_call_id)
        self._show()
        self._observer.call_started(opened.item_id, opened.call_id, name)
        if opened.text.value:
            self._observer.arguments_delta(opened.call_id, opened.text.value)

    def _close(self, opened: OpenItem, item: JsonObject) -> None:
        """An item is whole: what its pieces said fills what it leaves out."""
        whole: Item = without_long_ids(mended({**item, "id": opened.item_id}))
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
        opened.item = whole
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
        key = CALLS[opened.type]
        said = whole.get(key)
        text = said if isinstance(said, str) else "" if said is None else dumps(said).decode()
        text = text if text.strip() else opened.text.value
        if opened.type == "function_call":
            text = readable(text) if text.strip() not in ("", "null") else "{}"
            if not opened.text.value:
                self._observer.arguments_delta(opened.call_id, text)
        whole |= {"call_id": opened.call_id, "name": as_text(whole.get("name")) or opened.name, key: text}

    def _check_size(self, item: Item) -> None:
        content = item.get("content") or item.get("arguments") or item.get("input") or ""
        parts = content if isinstance(content, list) else [{"text": content}]
        size = sum(len(as_text(p.get("text"))) for p in objects(parts))
        if size > self._output.max_item_size:
            raise self._output.too_large()

    # the end

    def _completed(self, event: JsonObject) -> None:
        response = event.get("response")
        response = response if isinstance(response, dict) else {}
        self._counts = token_counts(response.get("usage"))
        match response.get("status"):
            case "failed" | "cancelled":
                self._failed(event)
            case "incomplete":
                self._incomplete(event)
        self._response = response

    def _failed(self, event: JsonObject) -> None:
        response = self._ended(event)
        failure = reported_failure(read_error(response.get("error") or event.get("error") or {}))
        failure.counts = self._counts
        # The request was taken and this is what became of it, whatever its error is called.
        failure.transient = False
        raise failure

    def _incomplete(self, event: JsonObject) -> None:
        response = self._ended(event)
        details = response.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, dict) else None
        if reason == "content_filter":
            failure = UpstreamFailure("content_filtered", "The provider's content filter stopped the answer")
        else:
            failure = UpstreamFailure("incomplete", "The model's answer was cut by the token limit")
        failure.counts = self._counts
        raise failure

    def _ended(self, event: JsonObject) -> JsonObject:
        response = event.get("response")
        response = response if isinstance(response, dict) else {}
        self._counts = token_counts(response.get("usage")) or self._counts
        return response

    def _error(self, event: JsonObject) -> None:
        nested = event.get("error")
        told = nested if nested else {k: v for k, v in event.items() if k != "type"}
        raise reported_failure(read_error(told))

    def finish(self) -> Reply:
        if self._response is None:
            raise cut_short("it ended without a final event")
        final = self._response.get("output")
        self._take_final(final if isinstance(final, list) else [])
        for opened in self._items:
            if opened.item is None and (opened.text.size or opened.refusal.size or opened.announced):
                self._close(opened, {"type": opened.type, "status": "completed"})
        response_id, model = self._response.get("id"), self._response.get("model")
        return Reply(self._in_order(), self._counts, as_text(response_id) or None, as_text(model) or None)

    def _take_final(self, output: list[Any]) -> None:
        """Items that only the final response holds; the others were reported when they were done."""
        unmatched = list(self._items)
        for place, item in enumerate(output):
            if not isinstance(item, dict) or not isinstance(item.get("type"), str):
                continue
            match = self._match(unmatched, place, item)
            if match is None:
                match = self._open({"output_index": place}, item["type"], item)
            else:
                unmatched.remove(match)
            match.index = place
            if match.item is None:
                self._close(match, item)

    @staticmethod
    def _match(candidates: list[OpenItem], place: int, item: JsonObject) -> OpenItem | None:
        """By id, else by call id, else by place, else the first of its type: relays renumber all of them."""
        same = [o for o in candidates if o.type == item["type"]]
        upstream_id, call_id = usable_id(item.get("id")), item.get("call_id")
        for found in (
            next((o for o in same if upstream_id and o.upstream_id == upstream_id), None),
            next((o for o in same if call_id and o.upstream_call_id == call_id), None),
            next((o for o in same if not call_id and o.index == place), None),
            next((o for o in same if not call_id), None),
        ):
            if found is not None:
                return found
        return None

    def _in_order(self) -> list[Item]:
        """As the server numbered them; those without a number stay where they came."""
        done = [(o.index, i, o.item) for i, o in enumerate(self._items) if o.item is not None]
        if all(index is not None for index, _, _ in done):
            done.sort(key=lambda entry: (entry[0] or 0, entry[1]))
        return [item for _, _, item in done if item["type"] != "message" or item["content"]]
