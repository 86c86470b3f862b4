"""The history of a request as a strict provider takes it, whatever the origin of its items."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from pydantic import BaseModel

from app.domain.json_types import Item
from app.runtime.models.long_ids import MAX_ID, without_long_ids
from app.runtime.models.past import expanded

OUR_IDS: Final = ("item_", "__fake_id__")
"""How ids begin that no provider has given: none may go back to one."""

_TEXT_PARTS: Final = ("text", "input_text", "output_text")
_PART_KEYS: Final = {
    "input_text": ("type", "text", "prompt_cache_breakpoint"),
    "output_text": ("type", "text", "annotations", "logprobs"),
    "refusal": ("type", "refusal"),
    "input_image": ("type", "image_url", "file_id", "detail", "prompt_cache_breakpoint"),
    "input_file": ("type", "filename", "file_data", "file_url", "file_id", "detail", "prompt_cache_breakpoint"),
    "input_audio": ("type", "input_audio"),
    "reasoning_text": ("type", "text"),
    "summary_text": ("type", "text"),
}
_ITEM_KEYS: Final = {
    "message": ("type", "id", "role", "content", "status", "phase"),
    "function_call": ("type", "id", "call_id", "name", "arguments", "status", "namespace", "caller"),
    "function_call_output": ("type", "id", "call_id", "output", "status", "caller"),
    "custom_tool_call": ("type", "id", "call_id", "name", "input", "status", "namespace", "caller"),
    "custom_tool_call_output": ("type", "id", "call_id", "output", "status", "caller"),
    "reasoning": ("type", "id", "summary", "content", "encrypted_content", "status"),
    "compaction": ("type", "id", "encrypted_content"),
}
_OURS: Final = ("provider_data", "transient")


def as_items(input: str | Sequence[Any]) -> list[Item]:
    """The SDK's `input` as a list of dicts."""
    if isinstance(input, str):
        return [{"type": "message", "role": "user", "content": input}]
    return [_as_item(entry) for entry in expanded(input)]


def _as_item(entry: Any) -> Item:
    if isinstance(entry, BaseModel):
        return entry.model_dump(exclude_unset=True, warnings=False)
    return dict(entry)


LIGHT_ITEMS: Final = 50
LIGHT_CHARACTERS: Final = 50_000


def is_light(input: str | Sequence[Any]) -> bool:
    """True if preparing and writing this input takes well under a millisecond."""
    if isinstance(input, str):
        return len(input) <= LIGHT_CHARACTERS
    if len(input) > LIGHT_ITEMS:
        return False
    entries = expanded(input)
    return len(entries) <= LIGHT_ITEMS and _has_at_most(LIGHT_CHARACTERS, entries)


def _has_at_most(characters: int, values: Iterable[Any]) -> bool:
    """Counts about as many characters as there are in the values, and only as long as it must."""
    waiting = list(values)
    while waiting and characters >= 0:
        value = waiting.pop()
        if isinstance(value, str):
            characters -= len(value)
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        characters -= 1
    return characters >= 0


def call_ids(items: Iterable[Item]) -> set[str]:
    return {i["call_id"] for i in items if isinstance(i.get("call_id"), str)}


def for_responses(items: Iterable[Item], upstream: str) -> list[Item]:
    """Items as the Responses API takes them.

    Reasoning that another upstream made is left out, and the ids of what followed it with it: a provider that
    knows such an id demands the reasoning that belongs to it.
    """
    result: list[Item] = []
    orphaned = False
    for item in items:
        kind = item.get("type", "message")
        if kind == "reasoning" and _is_foreign(item, upstream):
            orphaned = True
            continue
        clean = _clean(item, kind)
        if orphaned and kind != "reasoning" and "id" in clean and kind in _ITEM_KEYS:
            del clean["id"]
        orphaned = orphaned and clean.get("role") != "user"
        result.append(clean)
    return result


def _is_foreign(item: Item, upstream: str) -> bool:
    """True for reasoning that carries a mark of where it comes from, other than this Responses upstream.

    Our Chat Completions wire marks what it makes, as the SDK's own does; a Responses server's is unmarked.
    """
    mark = item.get("provider_data")
    if not mark:
        return False
    return not isinstance(mark, dict) or mark.get("upstream") != upstream or "field" in mark


def _clean(item: Item, kind: str) -> Item:
    if kind == "message" and (text_alone := _text_message(item)) is not None:
        return text_alone
    keys = _ITEM_KEYS.get(kind)
    if keys is None:
        clean = {k: v for k, v in item.items() if k not in _OURS}
    else:
        clean = {k: item[k] for k in keys if k in item and item[k] is not None}
        clean["type"] = kind
    if "id" in clean and not _may_go_back(clean["id"]):
        del clean["id"]
    if kind == "message":
        clean["content"] = _content(clean)
        if clean.get("role") != "assistant":
            clean.pop("status", None)
    elif kind == "reasoning":
        _clean_reasoning(clean)
    elif kind.endswith("_output") and isinstance(clean.get("output"), list):
        clean["output"] = [_part(p) for p in clean["output"]]
    return without_long_ids(clean)


def _text_message(item: Item) -> Item | None:
    """A message of text alone, which is most of a history, in the same shape for less; None for others."""
    content, role = item.get("content"), item.get("role")
    if not isinstance(content, list) or not isinstance(role, str):
        return None
    make = _said_text if role == "assistant" else _given_text
    parts = [make(part) for part in content]
    if None in parts:
        return None
    clean: Item = {"type": "message", "role": role, "content": parts}
    if role == "assistant":
        clean["status"] = item.get("status") or "completed"
    if (item_id := item.get("id")) is not None and _may_go_back(item_id):
        clean["id"] = item_id
    if (phase := item.get("phase")) is not None:
        clean["phase"] = phase
    return clean


def _said_text(part: Any) -> Item | None:
    if not isinstance(part, dict) or part.get("type") not in _TEXT_PARTS:
        return None
    if part.get("annotations") or part.get("logprobs"):
        return None
    return {"type": "output_text", "text": part.get("text") or "", "annotations": []}


def _given_text(part: Any) -> Item | None:
    is_text = isinstance(part, dict) and len(part) == 2 and part.get("type") == "input_text"
    return part if is_text and part.get("text") is not None else None


def _content(message: Item) -> Any:
    content = message.get("content")
    if message.get("role") == "assistant":
        # As an output item: some servers cannot tell what an assistant's plain string is.
        parts = [{"type": "output_text", "text": content}] if isinstance(content, str) else content or []
        message.setdefault("status", "completed")
        return [_output_part(p) for p in parts]
    return content if isinstance(content, str) else [_part(p) for p in content or []]


def _output_part(part: Any) -> Any:
    if isinstance(part, dict) and part.get("type") in _TEXT_PARTS:
        kept = {
            "type": "output_text",
            "text": part.get("text") or "",
            "annotations": part.get("annotations") or [],
        }
        return kept | ({"logprobs": part["logprobs"]} if part.get("logprobs") else {})
    return _part(part)


def _part(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    kind = part.get("type")
    if kind in ("text", "output_text"):
        return {"type": "input_text", "text": part.get("text") or ""}
    keys = _PART_KEYS.get(kind) if isinstance(kind, str) else None
    return part if keys is None else {k: part[k] for k in keys if part.get(k) is not None}


def _clean_reasoning(item: Item) -> None:
    item["summary"] = [_part(p) for p in item.get("summary") or []]
    if item.get("content"):
        item["content"] = [_part(p) for p in item["content"]]
    else:
        item.pop("content", None)


def _may_go_back(item_id: Any) -> bool:
    return isinstance(item_id, str) and 0 < len(item_id) <= MAX_ID and not item_id.startswith(OUR_IDS)
