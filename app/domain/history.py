"""Which items a turn leaves behind, and in which shape a strict provider takes them.

Two laws (contract, section 6). What a turn leaves depends on how it ended: see `left_behind`. And whatever the
moment, the next request is valid: no call without output, no output without call, no reasoning item without
what follows it, no message without content: see `repaired`. All functions take lists and return lists.
"""

from collections.abc import Iterable, Sequence

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
    items = _with_outputs(recorded, output_for_open_calls)
    items = _without_dangling_reasoning(items)
    return items + [NewItem(m.item_id, partial_message(m)) for m in cut]  # type: ignore[arg-type]


def partial_message(message: ShownMessage) -> Item:
    """The assistant message that stands for text that was cut."""
    content: list[Item] = []
    if message.parts:
        content.append({"type": "output_text", "text": message.text, "annotations": []})
    if message.refusal:
        content.append({"type": "refusal", "refusal": message.refusal})
    return {"type": "message", "role": "assistant", "status": "incomplete", "content": content}


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
    """The same history in a shape that a strict provider accepts.

    Outputs without a call, second outputs, messages without content and reasoning that nothing follows are
    dropped; a call without output gets the output `cancelled`; outputs that strayed are put behind their step.
    """
    kept = [i for i in items if not _is_empty_message(i)]
    outputs: dict[str, Item] = {}
    calls = {i["call_id"] for i in kept if i.get("type") in CALL_TYPES}
    for item in kept:
        if item.get("type") in OUTPUT_TYPES and item.get("call_id") in calls:
            outputs.setdefault(item["call_id"], item)
    result: list[Item] = []
    step: list[Item] = []
    seen: set[str] = set()
    answering = False
    for item in kept:
        kind = item.get("type")
        if kind in OUTPUT_TYPES:
            answering = True
            continue
        if step and (answering or kind not in CALL_TYPES | {"reasoning"}):
            result += _answers(step, outputs)
            step = []
        answering = False
        if kind in CALL_TYPES:
            if item["call_id"] in seen:
                continue
            seen.add(item["call_id"])
            step.append(item)
        result.append(item)
    return _reasoning_with_followers(result + _answers(step, outputs))


def _answers(step: Sequence[Item], outputs: dict[str, Item]) -> list[Item]:
    return [outputs.get(call["call_id"]) or call_output(call, CANCELLED_OUTPUT) for call in step]


def _is_empty_message(item: Item) -> bool:
    return item.get("type", "message") == "message" and item.get("content") in (None, "", [])


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
            followed = kind not in OUTPUT_TYPES and item.get("role") not in ("user", "system", "developer")
        result.append(item)
    result.reverse()
    return result


def newest(items: Sequence[Item], limit: int) -> list[Item]:
    """The newest `limit` items with pairs whole: it starts no later than the call of every output it holds."""
    if limit <= 0 or len(items) <= limit:
        return list(items)
    start = len(items) - limit
    needed = {i["call_id"] for i in items[start:] if i.get("type") in OUTPUT_TYPES}
    present = {i["call_id"] for i in items[start:] if i.get("type") in CALL_TYPES}
    for index in range(start - 1, -1, -1):
        if not needed - present:
            break
        if items[index].get("type") in CALL_TYPES:
            present.add(items[index]["call_id"])
            start = index
    while start > 0 and items[start - 1].get("type") == "reasoning":
        start -= 1
    return list(items[start:])
