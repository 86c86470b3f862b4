"""Agents without a model: a Python function reads a request in a wire-neutral form and returns the reply.

A brain is named by import path (`--brain NAME=module:function`, `*` for every model name):

    def brain(seen: Seen) -> Reply | dict:
        if seen.new_outputs:
            return {"text": f"It says {seen.new_outputs[-1]}"}
        return {"tool_calls": [{"name": "lookup", "arguments": {"q": seen.user_text}}]}
"""

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Seen:
    """What a model sees of a request, the same for both wires.

    `user_text`: the newest user message. `new_outputs`: outputs of the calls made since then, in order.
    `said`: every text of the assistant so far, in order.
    """

    model: str
    instructions: str
    user_text: str
    new_outputs: tuple[str, ...]
    tools: tuple[str, ...]
    turns: int
    said: tuple[str, ...] = ()

    @classmethod
    def of(cls, request: dict[str, Any]) -> "Seen":
        entries = _entries(request)
        users = [i for i, (role, _) in enumerate(entries) if role == "user"]
        newest = users[-1] if users else -1
        return cls(
            model=str(request.get("model")),
            instructions="\n".join(text for role, text in entries if role in ("system", "developer")),
            user_text=entries[newest][1] if users else "",
            new_outputs=tuple(text for role, text in entries[newest + 1 :] if role == "tool"),
            tools=tuple(_tool_name(tool) for tool in request.get("tools") or ()),
            turns=len(users),
            said=tuple(text for role, text in entries if role == "assistant" and text),
        )


def echo(seen: Seen) -> dict[str, Any]:
    """A tool's output or the user's words, given back."""
    return {"text": "\n".join(seen.new_outputs) or f"You said: {seen.user_text}"}


def _entries(request: dict[str, Any]) -> list[tuple[str, str]]:
    if "messages" in request:
        return [(m.get("role", ""), _text(m.get("content"))) for m in request["messages"]]
    items = request.get("input") or []
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    head = [("system", str(request["instructions"]))] if request.get("instructions") else []
    return head + [_entry(item) for item in items]


def _entry(item: dict[str, Any]) -> tuple[str, str]:
    if item.get("type") == "function_call_output":
        return "tool", _text(item.get("output"))
    return item.get("role", ""), _text(item.get("content"))


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return "" if content is None else json.dumps(content)


def _tool_name(tool: dict[str, Any]) -> str:
    return str(tool.get("name") or (tool.get("function") or {}).get("name"))
