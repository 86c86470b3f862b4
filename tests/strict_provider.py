"""What a strict provider has against a request's history, on each wire: pure functions, an empty list is fine.

Chat Completions: an assistant message with calls is followed at once by exactly one tool message for each of
them; a tool message stands nowhere else; no call is answered twice; arguments parse to a JSON object; names are
of letters, digits, _ and -; no message is without content, also where it refuses. (An id may come back in a
later assistant message and is a new call then.)

Responses: no call without output, no output without call, no reasoning without the item that must follow it, no
message without content, call ids and item ids unique, arguments a JSON object, names as above.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

JsonObject = dict[str, Any]
_CALLS = ("function_call", "custom_tool_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output")


def problems(request: JsonObject) -> list[str]:
    """The problems of a request body on whichever wire it is."""
    if "messages" in request:
        return chat_problems(request["messages"])
    items = request.get("input")
    return responses_problems(items) if isinstance(items, list) else []


def chat_problems(messages: Sequence[JsonObject]) -> list[str]:
    found: list[str] = []
    owed: list[str] = []
    for index, message in enumerate(messages):
        role = message.get("role")
        where = f"messages[{index}]"
        if role == "tool":
            call = str(message.get("tool_call_id"))
            if call not in owed:
                found.append(f"{where}: the output of {call!r} follows no call of it")
            else:
                owed.remove(call)
            continue
        found += [f"{where}: no output of {call!r} before it" for call in owed]
        owed = []
        calls = message.get("tool_calls") or []
        if role == "assistant" and calls:
            owed = [str(call.get("id")) for call in calls]
            found += _repeated(where, owed)
            found += [p for c in calls for p in _call_problems(where, c.get("function") or {})]
        elif _is_empty(message.get("content")):
            found.append(f"{where}: a message of {role} without content")
    return found + [f"the end: no output of {call!r}" for call in owed]


def responses_problems(items: Sequence[JsonObject]) -> list[str]:
    called = [str(i.get("call_id")) for i in items if i.get("type") in _CALLS]
    answered = [str(i.get("call_id")) for i in items if i.get("type") in _OUTPUTS]
    ids = [str(i["id"]) for i in items if i.get("id")]
    found = [f"no output of {call!r}" for call in called if call not in answered]
    found += _repeated("calls", called) + _repeated("outputs", answered) + _repeated("items", ids)
    seen: set[str] = set()
    for index, item in enumerate(items):
        where, kind = f"input[{index}]", item.get("type", "message")
        if kind in _CALLS:
            seen.add(str(item.get("call_id")))
        if kind == "function_call":
            found += _call_problems(where, item)
        if kind in _OUTPUTS and item.get("call_id") not in seen:
            found.append(f"{where}: the output of {item.get('call_id')!r} follows no call of it")
        if kind == "message" and _is_empty(item.get("content")):
            found.append(f"{where}: a message of {item.get('role')} without content")
        if kind == "reasoning" and not _is_followed(items[index + 1 :]):
            found.append(f"{where}: reasoning without the item that must follow it")
        found += _id_problems(where, item)
    return found


def refusal_body(found: Sequence[str]) -> JsonObject:
    """What the provider says, in a 400."""
    error = {"message": "; ".join(found), "type": "invalid_request_error", "param": "input", "code": None}
    return {"error": error}


def _is_followed(rest: Sequence[JsonObject]) -> bool:
    for item in rest:
        if item.get("type") == "reasoning":
            continue
        return item.get("role") == "assistant" or str(item.get("type", "")).endswith("_call")
    return False


def _call_problems(where: str, call: JsonObject) -> list[str]:
    named = re.fullmatch(r"[A-Za-z0-9_-]{1,64}", str(call.get("name")))
    return _argument_problems(where, call) + ([] if named else [f"{where}: {call.get('name')!r} is no name"])


def _argument_problems(where: str, call: JsonObject) -> list[str]:
    try:
        arguments = json.loads(call.get("arguments") or "")
    except (TypeError, ValueError):
        return [f"{where}: the arguments of {call.get('name')!r} are not JSON"]
    if not isinstance(arguments, dict):
        return [f"{where}: the arguments of {call.get('name')!r} are no JSON object"]
    return []


def _repeated(where: str, ids: Sequence[str]) -> list[str]:
    return [f"{where}: {i!r} stands {ids.count(i)} times" for i in dict.fromkeys(ids) if ids.count(i) > 1]


def _id_problems(where: str, item: JsonObject) -> list[str]:
    names = [name for name in ("id", "call_id") if len(str(item.get(name) or "")) > 64]
    return [f"{where}: {name} is longer than 64 characters" for name in names]


def _is_empty(content: Any) -> bool:
    if isinstance(content, list):
        return not any(_part_says_something(part) for part in content)
    return content is None or content == ""


def _part_says_something(part: JsonObject) -> bool:
    texts = [part[name] for name in ("text", "refusal") if name in part]
    return any(texts) if texts else True
