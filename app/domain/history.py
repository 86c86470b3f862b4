"""Which items a turn leaves behind, and in which shape a strict provider takes them.

Two laws (contract, section 6). What a turn leaves depends on how it ended: see `left_behind`. And whatever the
moment, the next request is valid: no call without output, no output without call, no reasoning item without
what follows it, no message without content: see `repaired`. All functions take lists and return lists.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from app.domain.conversation import NewItem
from app.domain.ids import new_item_id
from app.domain.json_types import Item
from app.domain.ledger import ShownMessage

CALL_TYPES = frozenset({"function_call", "custom_tool_call"})
OUTPUT_TYPES = frozenset({"function_call_output", "custom_tool_call_output"})
CANCELLED_OUTPUT = "cancelled"


def has_finished_step(items: Sequence[NewItem]) -> bool:
    """True if a model's response stands among `items` and every call of it has its output."""
    waiting: set[str] = set()
    finished = False
    for new in items:
        kind = new.item.get("type")
        if kind in CALL_TYPES:
            waiting.add(new.item["call_id"])
        elif kind in OUTPUT_TYPES:
            waiting.discard(new.item["call_id"])
        finished = finished or (_made_by_turn(new) and not waiting and kind != "reasoning")
    return finished


def _made_by_turn(new: NewItem) -> bool:
    return new.origin is not None or new.item.get("type") in OUTPUT_TYPES


def left_behind(
    recorded: Sequence[NewItem], shown: Sequence[ShownMessage], *, output_for_open_calls: str
) -> list[NewItem]:
    """What is kept of a turn that was stopped: all that was recorded, and the text that was shown since.

    `recorded` holds the input, every response that was complete, and the outputs of the tools that ended.
    Messages in `shown` that are not in it were cut: their text is kept as a message without upstream id.
    """
    known = {new.id for new in recorded}
    cut = [m for m in shown if m.item_id not in known]
    items = _with_outputs(_without_dangling_reasoning(recorded), output_for_open_calls)
    return items + [NewItem(m.item_id, partial_message(m)) for m in cut]  # type: ignore[arg-type]


def partial_message(message: ShownMessage) -> Item:
    """The assistant message that stands for text that was cut."""
    content: list[Item] = []
    if message.parts:
        content.append({"type": "output_text", "text": message.text, "annotations": []})
    if message.refusal:
        content.append({"type": "refusal", "refusal": message.refusal})
    return {"type": "message", "role": "assistant", "content": content}


def call_output(call: Item, output: str) -> Item:
    """The item that answers `call`."""
    kind = "custom_tool_call_output" if call["type"] == "custom_tool_call" else "function_call_output"
    return {"type": kind, "call_id": call["call_id"], "output": output}


def _with_outputs(items: Sequence[NewItem], output: str) -> list[NewItem]:
    """Give every call that has no output one, right after the step it belongs to."""
    answered = {n.item["call_id"] for n in items if n.item.get("type") in OUTPUT_TYPES}
    result: list[NewItem] = []
    owed: list[NewItem] = []
    for new in items:
        kind = new.item.get("type")
        if owed and kind not in CALL_TYPES | OUTPUT_TYPES | {"reasoning"} and new.origin is None:
            result += owed
            owed = []
        result.append(new)
        if kind in CALL_TYPES and new.item["call_id"] not in answered:
            owed.append(NewItem(new_item_id(), call_output(new.item, output)))
    return result + owed


def _without_dangling_reasoning(items: Sequence[NewItem]) -> list[NewItem]:
    result = list(items)
    while result and result[-1].item.get("type") == "reasoning":
        result.pop()
    return result


def repaired(items: Iterable[Item]) -> list[Item]:
    """The same history in a shape that a strict provider accepts. The items themselves are not changed.

    Outputs without a call, second outputs, messages without content and reasoning that nothing follows are
    dropped; a call without output gets the output `cancelled`; outputs that strayed are put behind their step,
    whose assistant messages stay within it; arguments that are no JSON object are wrapped in one. A provider's
    request for approval that nobody answered is dropped.
    """
    kept = _with_answered_requests([i for item in items if (i := _with_content(item)) is not None])
    outputs = _outputs_of_calls(kept)
    result: list[Item] = []
    step: list[int] = []
    answering = False
    for index, item in enumerate(kept):
        kind = item.get("type")
        if kind in _OUTPUT_OF.values():
            answering = True
            continue
        if step and (answering or not _goes_on_with_step(item)):
            result += _answers(kept, step, outputs)
            step = []
        answering = False
        if kind in _OUTPUT_OF:
            if index not in outputs:
                continue
            step.append(index)
        result.append(_with_object_arguments(item) if kind == "function_call" else item)
    return _reasoning_with_followers(result + _answers(kept, step, outputs))


_OUTPUT_OF = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "shell_call": "shell_call_output",
    "local_shell_call": "local_shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
}


def _outputs_of_calls(items: Sequence[Item]) -> dict[int, Item | None]:
    """The output of each call by the call's place, None if it has none; calls that must go are left out.

    An id may be used again by a later step: an output belongs to the nearest call before it that has none.
    """
    outputs: dict[int, Item | None] = {}
    latest: dict[str, int] = {}
    early: dict[str, Item] = {}
    step: set[str] = set()
    for index, item in enumerate(items):
        kind, call_id = item.get("type"), item.get("call_id")
        if kind in _OUTPUT_OF:
            if not call_id or call_id in step:
                continue
            step.add(call_id)
            latest[call_id] = index
            outputs[index] = early.pop(call_id, None)
        elif kind in _OUTPUT_OF.values() and call_id:
            step.clear()
            if call_id not in latest:
                early.setdefault(call_id, item)
            elif outputs[latest[call_id]] is None:
                outputs[latest[call_id]] = item
        elif not _goes_on_with_step(item):
            step.clear()
    return {i: output for i, output in outputs.items() if output or items[i]["type"] in CALL_TYPES}


def _with_answered_requests(items: Sequence[Item]) -> list[Item]:
    """Without requests for approval that have no response, and without responses that have no request."""
    asked = {i.get("id") for i in items if i.get("type") == "mcp_approval_request"}
    answered = {i.get("approval_request_id") for i in items if i.get("type") == "mcp_approval_response"}
    whole = asked & answered
    key = {"mcp_approval_request": "id", "mcp_approval_response": "approval_request_id"}
    return [i for i in items if i.get("type") not in key or i.get(key[i["type"]]) in whole]


def _goes_on_with_step(item: Item) -> bool:
    """True if between two items of a step there may be this one: the model said it in one breath."""
    kind = item.get("type", "message")
    return kind in _OUTPUT_OF or kind == "reasoning" or (kind == "message" and item.get("role") == "assistant")


def _answers(items: Sequence[Item], step: Sequence[int], outputs: dict[int, Item | None]) -> list[Item]:
    return [outputs[i] or call_output(items[i], CANCELLED_OUTPUT) for i in step]


def _with_content(item: Item) -> Item | None:
    """The item without parts that say nothing; None if it is a message and nothing is left."""
    if item.get("type", "message") != "message":
        return item
    content = item.get("content")
    if isinstance(content, list) and any(_is_blank(part) for part in content):
        content = [part for part in content if not _is_blank(part)]
        item = {**item, "content": content}
    return item if content not in (None, "", []) else None


def _is_blank(part: Any) -> bool:
    return isinstance(part, dict) and (part.get("text", 0) == "" or part.get("refusal", 0) == "")


def _with_object_arguments(item: Item) -> Item:
    """Providers refuse a history whose calls hold anything but an object; what it was stays readable in it."""
    arguments = item.get("arguments")
    if isinstance(arguments, str) and arguments.strip():
        try:
            if isinstance(json.loads(arguments), dict):
                return item
        except (ValueError, RecursionError):
            pass
        return {**item, "arguments": json.dumps({"invalid_arguments": arguments})}
    return {**item, "arguments": json.dumps(arguments) if isinstance(arguments, dict) else "{}"}


def _reasoning_with_followers(items: Sequence[Item]) -> list[Item]:
    """Drop each reasoning item that is not followed by a message, a call or more reasoning that is."""
    result: list[Item] = []
    followed = False
    for item in reversed(items):
        kind = item.get("type")
        if kind == "reasoning":
            if not followed:
                continue
        else:
            by_caller = item.get("role") in ("user", "system", "developer")
            followed = kind not in _OUTPUT_OF.values() and not by_caller
        result.append(item)
    result.reverse()
    return result


def newest(items: Sequence[Item], limit: int) -> list[Item]:
    """The newest `limit` items of what `repaired` returns, and as valid: with what they need of those before
    them, the call of each output, the other calls of a step, and what was said and thought before them."""
    if limit <= 0 or len(items) <= limit:
        return list(items)
    needed: set[Any] = set()
    for start in range(len(items) - 1, 0, -1):
        item = items[start]
        match item.get("type"):
            case kind if kind in _OUTPUT_OF:
                needed.discard(item.get("call_id"))
            case kind if kind in _OUTPUT_OF.values():
                needed.add(item.get("call_id"))
            case "mcp_approval_response":
                needed.add(item.get("approval_request_id"))
            case "mcp_approval_request":
                needed.discard(item.get("id"))
        if len(items) - start >= limit and not needed and not _in_one_breath(items[start - 1], item):
            return list(items[start:])
    return list(items)


def _in_one_breath(before: Item, item: Item) -> bool:
    """True if an item is not to be had without the one before it."""
    if before.get("role") == "assistant":
        return item.get("type") in _OUTPUT_OF
    return _goes_on_with_step(before)
