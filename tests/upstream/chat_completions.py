"""A reply on the Chat Completions wire: chunks, or one `chat.completion` object."""

import itertools
from collections.abc import Iterator
from typing import Any

from tests.upstream.frames import Frame, Kind, compact, encode
from tests.upstream.reply import Reply, TokenUsage, ToolCall, pieces

DONE = Frame("finish", b"data: [DONE]\n\n")
_numbers = itertools.count(1)


def stream(reply: Reply, request: dict[str, Any]) -> list[Frame]:
    """The chunks of a reply; usage only if `stream_options.include_usage` asks for it."""
    answer = _Chunks(str(request.get("model")))
    frames = [answer.frame("start", {"role": "assistant", "content": ""})]
    frames += [answer.frame("reasoning", {"reasoning_content": p}) for p in pieces(reply.reasoning or "", None)]
    frames += [answer.frame("text", {"content": p}) for p in pieces(reply.text or "", reply.chunks)]
    frames += [answer.frame("refusal", {"refusal": p}) for p in pieces(reply.refusal or "", None)]
    for index, call in enumerate(reply.tool_calls):
        frames += answer.call(index, call)
    frames.append(answer.frame("finish", {}, finish=_finish(reply)))
    wanted = (request.get("stream_options") or {}).get("include_usage")
    if wanted and reply.usage:
        frames.append(answer.usage(reply.usage))
    return [*frames, DONE]


def whole(reply: Reply, request: dict[str, Any]) -> dict[str, Any]:
    calls = [_whole_call(call) for call in reply.tool_calls]
    message = {"role": "assistant", "content": reply.text, "refusal": reply.refusal}
    if reply.reasoning:
        message |= {"reasoning_content": reply.reasoning}
    if calls:
        message |= {"tool_calls": calls}  # type: ignore[dict-item]
    choice = {"index": 0, "message": message, "finish_reason": _finish(reply)}
    usage = usage_json(reply.usage) if reply.usage else None
    return _envelope("chat.completion", str(request.get("model"))) | {"choices": [choice], "usage": usage}


def usage_json(usage: TokenUsage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


class _Chunks:
    def __init__(self, model: str) -> None:
        self._envelope = _envelope("chat.completion.chunk", model)

    def frame(self, kind: Kind, delta: dict[str, Any], *, finish: str | None = None) -> Frame:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return Frame(kind, _sse(self._envelope | {"choices": [choice]}))

    def usage(self, usage: TokenUsage) -> Frame:
        return Frame("finish", _sse(self._envelope | {"choices": [], "usage": usage_json(usage)}))

    def call(self, index: int, call: ToolCall) -> Iterator[Frame]:
        function = {"name": call.name, "arguments": ""}
        head = {"index": index, "id": call_id(call), "type": "function", "function": function}
        yield self.frame("other", {"tool_calls": [head]})
        for piece in pieces(arguments_text(call), call.chunks):
            delta = {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
            yield self.frame("arguments", delta)


def arguments_text(call: ToolCall) -> str:
    return call.arguments if isinstance(call.arguments, str) else compact(call.arguments)


def call_id(call: ToolCall) -> str:
    return call.id or f"call_{next(_numbers)}"


def _whole_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": arguments_text(call)}
    return {"id": call_id(call), "type": "function", "function": function}


def _finish(reply: Reply) -> str:
    return reply.finish or ("tool_calls" if reply.tool_calls else "stop")


def _envelope(kind: str, model: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{next(_numbers)}", "object": kind, "created": 1, "model": model}


def _sse(chunk: dict[str, Any]) -> bytes:
    return b"data: " + encode(chunk) + b"\n\n"
