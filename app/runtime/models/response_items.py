"""An output item of a Responses stream: while it is open, and what it is once it is whole.

Values are taken for what they are, not for what they should be: anything may stand where a text is expected.
"""

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from app.domain.json_types import Item, JsonObject
from app.runtime.models.reply import Text

PLACEHOLDER_IDS: Final = frozenset({"__fake_id__", ""})


@dataclass(slots=True)
class OpenItem:
    """An item that has begun. `upstream_id` and `index` are how its server calls it."""

    type: str
    item_id: str
    upstream_id: str | None
    index: int | None
    text: Text
    refusal: Text
    call_id: str = ""
    upstream_call_id: str | None = None
    name: str = ""
    kind: Literal["summary", "text"] = "text"
    annotations: list[JsonObject] = field(default_factory=list)
    announced: bool = False
    item: Item | None = None


def piece_of(event: JsonObject) -> str:
    delta = event.get("delta")
    if isinstance(delta, str):
        return delta
    return as_text(delta.get("text")) if isinstance(delta, dict) else ""


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def usable_id(value: Any) -> str | None:
    return value if isinstance(value, str) and value not in PLACEHOLDER_IDS else None


def whole_message(opened: OpenItem, item: Item) -> Item:
    content = item.get("content")
    if isinstance(content, str):
        content = [{"type": "output_text", "text": content}]
    parts = [p for p in objects(content) if as_text(p.get("text")) or as_text(p.get("refusal"))]
    if not parts and opened.text.value:
        parts.append({"type": "output_text", "text": opened.text.value, "annotations": opened.annotations})
    if not parts and opened.refusal.value:
        parts.append({"type": "refusal", "refusal": opened.refusal.value})
    for part in parts:
        if as_text(part.get("text")):
            part["type"] = "output_text"
            part["annotations"] = objects(part.get("annotations"))
        else:
            part["type"] = "refusal"
    return {**item, "role": "assistant", "status": item.get("status") or "completed", "content": parts}


def fill_reasoning(opened: OpenItem, item: Item) -> None:
    item["summary"] = _texts(item.get("summary"), "summary_text")
    if "content" in item:
        item["content"] = _texts(item["content"], "reasoning_text")
    text = opened.text.value
    if text and not item["summary"] and not item.get("content"):
        if opened.kind == "summary":
            item["summary"] = [{"type": "summary_text", "text": text}]
        else:
            item["content"] = [{"type": "reasoning_text", "text": text}]


def _texts(parts: Any, kind: str) -> list[JsonObject]:
    return [{"type": kind, "text": p["text"]} for p in objects(parts) if as_text(p.get("text"))]


def objects(value: Any) -> list[JsonObject]:
    """The objects of a list, whatever else it holds and whatever else came instead of one."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
