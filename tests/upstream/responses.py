"""A reply on the Responses wire: the full sequence of events, or one `response` object."""

import itertools
from typing import Any

from tests.upstream.chat_completions import arguments_text, call_id
from tests.upstream.frames import Frame, Kind, encode
from tests.upstream.reply import Reply, TokenUsage, ToolCall, pieces

JsonObject = dict[str, Any]
_numbers = itertools.count(1)
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def stream(reply: Reply, request: JsonObject) -> list[Frame]:
    """Every event from `response.created` to the one that ends the response, numbered from 0."""
    return _rendered(reply, request).frames


def whole(reply: Reply, request: JsonObject) -> JsonObject:
    return _rendered(reply, request).response


def usage_json(usage: TokenUsage) -> JsonObject:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }


def _rendered(reply: Reply, request: JsonObject) -> "_Events":
    events = _Events(str(request.get("model")))
    events.begin()
    if reply.reasoning:
        events.reasoning(pieces(reply.reasoning, None))
    if reply.text is not None:
        events.text(pieces(reply.text, reply.chunks))
    if reply.refusal:
        events.refusal(pieces(reply.refusal, None))
    for call in reply.tool_calls:
        events.call(call)
    events.finish(reply)
    return events


class _Events:
    def __init__(self, model: str) -> None:
        self.frames: list[Frame] = []
        self.response: JsonObject = {
            "id": f"resp_{next(_numbers)}",
            "object": "response",
            "created_at": 1,
            "status": "in_progress",
            "model": model,
            "output": [],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "error": None,
            "incomplete_details": None,
            "usage": None,
        }

    def begin(self) -> None:
        self._emit("start", "response.created", response=dict(self.response))
        self._emit("start", "response.in_progress", response=dict(self.response))

    def reasoning(self, parts: list[str]) -> None:
        item: JsonObject = {"id": f"rs_{next(_numbers)}", "type": "reasoning", "summary": []}
        at = {"item_id": item["id"], "output_index": self._index, "summary_index": 0}
        self._added(item)
        summary = {"type": "summary_text", "text": ""}
        self._emit("other", "response.reasoning_summary_part.added", **at, part=summary)
        for part in parts:
            self._emit("reasoning", "response.reasoning_summary_text.delta", **at, delta=part)
        summary = {"type": "summary_text", "text": "".join(parts)}
        self._emit("other", "response.reasoning_summary_text.done", **at, text=summary["text"])
        self._emit("other", "response.reasoning_summary_part.done", **at, part=summary)
        self._done(item | {"summary": [summary]})

    def text(self, parts: list[str]) -> None:
        empty = {"type": "output_text", "text": "", "annotations": []}
        self._message("text", "response.output_text", empty, "text", parts)

    def refusal(self, parts: list[str]) -> None:
        self._message("refusal", "response.refusal", {"type": "refusal", "refusal": ""}, "refusal", parts)

    def _message(self, kind: Kind, name: str, part: JsonObject, field: str, parts: list[str]) -> None:
        item: JsonObject = {"id": f"msg_{next(_numbers)}", "type": "message", "role": "assistant"}
        item |= {"status": "in_progress", "content": []}
        at = {"item_id": item["id"], "output_index": self._index, "content_index": 0}
        self._added(item)
        self._emit("other", "response.content_part.added", **at, part=part)
        for piece in parts:
            self._emit(kind, f"{name}.delta", **at, delta=piece)
        part = part | {field: "".join(parts)}
        self._emit("other", f"{name}.done", **at, **{field: part[field]})
        self._emit("other", "response.content_part.done", **at, part=part)
        self._done(item | {"status": "completed", "content": [part]})

    def call(self, call: ToolCall) -> None:
        item: JsonObject = {"id": f"fc_{next(_numbers)}", "type": "function_call", "status": "in_progress"}
        item |= {"call_id": call_id(call), "name": call.name, "arguments": ""}
        at = {"item_id": item["id"], "output_index": self._index}
        text = arguments_text(call)
        self._added(item)
        for piece in pieces(text, call.chunks):
            self._emit("arguments", "response.function_call_arguments.delta", **at, delta=piece)
        self._emit("other", "response.function_call_arguments.done", **at, name=call.name, arguments=text)
        self._done(item | {"status": "completed", "arguments": text})

    def finish(self, reply: Reply) -> None:
        cut = _INCOMPLETE.get(reply.finish or "")
        status = "incomplete" if cut else "completed"
        self.response["status"] = status
        self.response["incomplete_details"] = {"reason": cut} if cut else None
        self.response["usage"] = usage_json(reply.usage) if reply.usage else None
        self._emit("finish", f"response.{status}", response=self.response)

    @property
    def _index(self) -> int:
        return len(self.response["output"])

    def _added(self, item: JsonObject) -> None:
        self._emit("other", "response.output_item.added", output_index=self._index, item=item)

    def _done(self, item: JsonObject) -> None:
        self._emit("other", "response.output_item.done", output_index=self._index, item=item)
        self.response["output"] = [*self.response["output"], item]

    def _emit(self, kind: Kind, event_type: str, /, **fields: Any) -> None:
        event = {"type": event_type, "sequence_number": len(self.frames), **fields}
        self.frames.append(Frame(kind, f"event: {event_type}\ndata: ".encode() + encode(event) + b"\n\n"))
