"""Ids that are longer than the Responses API takes: it refuses a whole request for one, wherever it stands."""

from typing import Any, Final

from app.domain.json_types import Item

MAX_ID: Final = 64


def without_long_ids(item: Item) -> Item:
    """The item without any `id` of more characters, at any depth; itself if it has none."""
    return _dropped(item) if _holds_one(item) else item


def _holds_one(value: Any) -> bool:
    """Asked of every item of every request: nearly none does, and a copy costs more than the look."""
    if isinstance(value, dict):
        if _is_long(value.get("id")):
            return True
        return any(_holds_one(v) for v in value.values() if isinstance(v, dict | list))
    return any(_holds_one(v) for v in value if isinstance(v, dict | list))


def _dropped(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _dropped(v) for k, v in value.items() if not (k == "id" and _is_long(v))}
    return [_dropped(v) for v in value] if isinstance(value, list) else value


def _is_long(value: Any) -> bool:
    return isinstance(value, str) and len(value) > MAX_ID
