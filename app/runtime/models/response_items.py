"""An output item of a Responses stream: while it is open, and what it is once it is whole.

Values are taken for what they are, not for what they should be: anything may stand where a text is expected.
"""

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from app.domain.json_types import Item, JsonObject
from app.runtime.models.call_arguments import settled
from app.runtime.models.json_frames import dumps
from app.runtime.models.reply import Text
from app.runtime.models.sdk_objects import ITEM_CLASSES

CALLS: Final = {"function_call": "arguments", "custom_tool_call": "input"}
"""Types of calls that an SDK tool answers, and where their input stands."""
LOCAL_TOOLS: Final = {
    "computer_call": "computer",
    "local_shell_call": "local_shell",
    "shell_call": "shell",
    "apply_patch_call": "apply_patch",
}
"""Calls of the provider's own shapes that are run here."""
NAMES: Final = frozenset({"name", "server_label", "namespace", "call_id", "status"})
"""What the SDK looks things up by."""
PLACEHOLDER_IDS: Final = frozenset({"__fake_id__", ""})
TAKEN: Final = frozenset(ITEM_CLASSES) - {
    "function_call_output",
    "custom_tool_call_output",
    "computer_call_output",
    "local_shell_call_output",
    "apply_patch_call_output",
    "mcp_approval_response",
}
"""Types of items that a model can answer with: what the SDK knows, and no answers to the model's own calls."""


@dataclass(slots=True, eq=False)
class OpenItem:
    """An item that has begun. `upstream_id`, `index` and `upstream_call_id` are how its server calls it; `said`
    is what the server sent when it was done."""

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
    added: bool = False
    announced: bool = False
    item: Item | None = None
    said: Item | None = None


def item_type(item: Any) -> str | None:
    """The type of an output item, or what it must be where it has none; None for what is no item."""
    if not isinstance(item, dict):
        return None
    if isinstance(kind := item.get("type"), str) and kind:
        return kind
    if "call_id" in item and "name" in item:
        return "function_call"
    return "message" if "content" in item and "summary" not in item else None


def piece_of(event: JsonObject) -> str:
    """The text of a delta; of a call's arguments it may be an object."""
    delta = event.get("delta")
    if isinstance(delta, str):
        return delta
    if isinstance(delta, dict) and "arguments" in str(event.get("type")):
        return dumps(delta).decode()
    return text_of(delta)


def called_by(event: JsonObject) -> str:
    """The type of the call whose input an event brings."""
    return "custom_tool_call" if "custom" in str(event.get("type")) else "function_call"


def call_text(opened: OpenItem, item: Item) -> str:
    """The whole input of a call: as its item says it, else as its pieces did."""
    text = argument_text(item.get(CALLS[opened.type]))
    pieces = [text] if text.strip() else opened.text.parts
    return settled(pieces) if opened.type == "function_call" else "".join(pieces)


def argument_text(said: Any) -> str:
    return said if isinstance(said, str) else "" if said is None else dumps(said).decode()


def text_of(value: Any) -> str:
    """A text, or the one within an object."""
    if isinstance(value, dict):
        value = value.get("text") or value.get("value")
    return as_text(value)


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def usable_id(value: Any) -> str | None:
    return value if isinstance(value, str) and value not in PLACEHOLDER_IDS else None


def with_names(item: Item) -> Item:
    """The item without names that are no texts, and with its arguments as one."""
    named = {k: v for k, v in item.items() if k not in NAMES or v is None or isinstance(v, str)}
    if item.get("arguments") is not None:
        named["arguments"] = argument_text(item["arguments"])
    return named


def whole_message(opened: OpenItem, item: Item) -> Item:
    """The message with all that was said of it. Blanks alone are no content."""
    parts = [p for part in as_list(item.get("content")) if (p := _part(part)) is not None]
    if not parts and opened.text.value:
        parts.append({"type": "output_text", "text": opened.text.value, "annotations": opened.annotations})
    if not parts and opened.refusal.value:
        parts.append({"type": "refusal", "refusal": opened.refusal.value})
    says = any(p.get("refusal") or p.get("text", "").strip() for p in parts)
    content = parts if says else []
    return {**item, "role": "assistant", "status": item.get("status") or "completed", "content": content}


def _part(part: Any) -> JsonObject | None:
    part = part if isinstance(part, dict) else {"text": part}
    text, refusal = text_of(part.get("text")), as_text(part.get("refusal"))
    if part.get("type") == "refusal":
        refusal = refusal or text
    if refusal:
        return {"type": "refusal", "refusal": refusal}
    annotations = objects(part.get("annotations"))
    return part | {"type": "output_text", "text": text, "annotations": annotations} if text else None


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
    texts = [text_of(p.get("text")) if isinstance(p, dict) else as_text(p) for p in as_list(parts)]
    return [{"type": kind, "text": text} for text in texts if text]


def as_list(value: Any) -> list[Any]:
    """A list; what is none stands alone in one."""
    return value if isinstance(value, list) else [] if value is None else [value]


def objects(value: Any) -> list[JsonObject]:
    """The objects of a list, whatever else it holds and whatever else came instead of one."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
