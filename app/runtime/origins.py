"""History across upstreams: what one of them added to an item never reaches another.

An item that a model made knows its upstream, its origin. Where another upstream is asked, only what any model
can read goes there: what was said, and which tools of ours were called. Reasoning, encrypted content, tools
that a provider ran itself and all ids of its own stay behind.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from app.domain.json_types import Item

SHARED_TYPES: Final = frozenset(
    {
        "message",
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
    }
)
"""Items that every wire and provider can read."""
OUTPUT_ONLY: Final = "created_by"
"""What providers tell of an item and do not take back."""
_PROVIDERS_OWN: Final = (
    "id",
    "provider_data",
    "status",
    "phase",
    "namespace",
    "caller",
    "encrypted_content",
    OUTPUT_ONLY,
)
_OF_PARTS: Final = ("logprobs",)


def native_items(
    items: Iterable[Item],
    upstream: str,
    origin_of: Callable[[Item], str | None],
    *,
    omit_reasoning_ids: bool = False,
) -> list[Item]:
    """The items as `upstream` may get them; those that have no origin, or are its own, as they are.

    With `omit_reasoning_ids` its own reasoning goes back without its id.
    """
    result: list[Item] = []
    for item in items:
        origin = origin_of(item)
        if origin is not None and origin != upstream:
            if item.get("type", "message") in SHARED_TYPES:
                result.append(neutral(item))
        elif omit_reasoning_ids and item.get("type") == "reasoning" and "id" in item:
            result.append({k: v for k, v in item.items() if k != "id"})
        elif OUTPUT_ONLY in item:
            result.append({k: v for k, v in item.items() if k != OUTPUT_ONLY})
        else:
            result.append(item)
    return result


def neutral(item: Item) -> Item:
    """The item without what only its maker understands."""
    plain = {k: v for k, v in item.items() if k not in _PROVIDERS_OWN}
    if isinstance(plain.get("content"), list):
        plain["content"] = [_neutral_part(part) for part in plain["content"]]
    return plain


def _neutral_part(part: Any) -> Any:
    """Annotations point at files and containers of the provider."""
    if not isinstance(part, dict):
        return part
    plain = {k: v for k, v in part.items() if k not in _OF_PARTS}
    return plain | {"annotations": []} if "annotations" in plain else plain
