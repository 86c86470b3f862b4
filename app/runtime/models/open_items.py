"""The output items of one Responses stream, and which of them an event means.

Servers name an item by its id, by its place and by a call's id. They leave each of them out, make up a new one
for each event, and give the same one to two items: what counts is how much agrees.
"""

from collections.abc import Callable, Sequence
from typing import Any

from app.domain.json_types import Item, JsonObject
from app.runtime.models.json_frames import as_index, mended
from app.runtime.models.reply import Output, Text
from app.runtime.models.response_items import CALLS, OpenItem, as_text, usable_id


class OpenItems:
    """In the order in which they began. `claim` makes of the server's id the one that is ours."""

    def __init__(self, output: Output, claim: Callable[[str | None], str]) -> None:
        self.all: list[OpenItem] = []
        self._output = output
        self._claim = claim
        self._by_id: dict[str, OpenItem] = {}

    def clear(self) -> None:
        self.all.clear()
        self._by_id.clear()

    def open(self, event: JsonObject, kind: str, item: JsonObject) -> OpenItem:
        upstream_id = usable_id(item.get("id"))
        opened = OpenItem(
            kind,
            self._claim(mended(upstream_id)),
            upstream_id,
            as_index(event.get("output_index")),
            Text(self._output),
            Text(self._output),
        )
        self.all.append(opened)
        self._output.check_count(len(self.all))
        if upstream_id is not None:
            self._by_id[upstream_id] = opened
        return opened

    def of_delta(self, event: JsonObject, kind: str) -> OpenItem | None:
        """The open item that a delta goes on with; one that was never announced begins here. None if it comes
        too late: its item is done."""
        upstream_id, place = event.get("item_id"), event.get("output_index")
        # The common case first: this runs for every token.
        found = self._by_id.get(upstream_id) if isinstance(upstream_id, str) else None
        if found is None or found.type != kind or found.index != place:
            upstream_id, place = usable_id(upstream_id), as_index(place)
            found = self._of_delta(upstream_id, place, kind)
        if found is None:
            return self.open(event, kind, {"id": upstream_id})
        return found if found.item is None else None

    def _of_delta(self, upstream_id: str | None, place: int | None, kind: str) -> OpenItem | None:
        newest_first = [o for o in reversed(self.all) if o.type == kind]
        placed = [o for o in newest_first if place is not None and o.index == place]
        named = [o for o in newest_first if upstream_id is not None and o.upstream_id == upstream_id]
        if upstream_id is not None:
            placed = [o for o in placed if o.item is None or o in named]
            named = [o for o in named if o.item is None or place in (None, o.index)]
        for found in ([o for o in named if o in placed], placed, named):
            if found:
                return found[0]
        if place is not None and any(o.index is not None for o in newest_first):
            return None
        return next((o for o in newest_first if o.item is None), None)

    def of_end(self, event: JsonObject, kind: str) -> OpenItem | None:
        """The open item whose text an event says whole. One begins here only if there is none of its kind."""
        if usable_id(event.get("item_id")) is None and as_index(event.get("output_index")) is None:
            of_kind = [o for o in reversed(self.all) if o.type == kind]
            if of_kind:
                return next((o for o in of_kind if o.item is None), None)
        return self.of_delta(event, kind)

    def added(self, event: JsonObject, kind: str, item: JsonObject) -> OpenItem | None:
        """The open item that is announced here although it has begun; a new place means a new item."""
        place = as_index(event.get("output_index"))
        rivals = [o for o in self._open(kind) if place is None or o.index in (None, place)]
        found, agreement = _most_alike(rivals, place, item)
        if found is not None and agreement > 0:
            return found
        nameless = place is None and usable_id(item.get("id")) is None
        return next((o for o in rivals if nameless and not o.added), None)

    def done(self, event: JsonObject, kind: str, item: JsonObject) -> OpenItem | None:
        """The open item that is whole now."""
        place = as_index(event.get("output_index"))
        rivals = self._open(kind)
        found, agreement = _most_alike(rivals, place, item)
        if found is not None and agreement >= 0:
            return found
        is_call = as_text(item.get("call_id"))
        return rivals[0] if len(rivals) == 1 and place is None and not is_call else None

    def has_called(self, call_id: Any) -> bool:
        """True if one of our tools is called by that id."""
        return any(o.type in CALLS and o.upstream_call_id == call_id for o in self.all)

    def is_repeated(self, event: JsonObject, item: JsonObject) -> bool:
        """True if just this item is done already."""
        place = as_index(event.get("output_index"))
        return any(o.said == item and o.index == place for o in self.all)

    def _open(self, kind: str) -> list[OpenItem]:
        return [o for o in self.all if o.item is None and o.type == kind]


def _most_alike(rivals: Sequence[OpenItem], place: int | None, item: JsonObject) -> tuple[OpenItem | None, int]:
    """The first item of which most agrees, and how much: a call's id tells more than an item's or a place."""
    best: tuple[OpenItem | None, int] = None, -9
    for rival in rivals:
        agreement = (
            _agreement(rival.upstream_id, usable_id(item.get("id")))
            + _agreement(rival.index, place)
            + 2 * _agreement(rival.upstream_call_id, as_text(item.get("call_id")) or None)
        )
        if agreement > best[1]:
            best = rival, agreement
    return best


def _agreement(known: Any, told: Any) -> int:
    if known is None or told is None:
        return 0
    return 1 if known == told else -1


def in_final(candidates: Sequence[OpenItem], place: int, item: Item, kind: str) -> OpenItem | None:
    """Which of the items that were streamed stands at a place of the final response: by id, else by call id,
    else by place, else the first of its type, since relays renumber all of them."""
    same = [o for o in candidates if o.type == kind]
    upstream_id, call_id = usable_id(item.get("id")), item.get("call_id")
    unlike = [o for o in same if call_id and o.upstream_call_id and o.upstream_call_id != call_id]
    others = [o for o in same if o not in unlike]
    for found in (
        next((o for o in same if upstream_id and o.upstream_id == upstream_id), None),
        next((o for o in same if call_id and o.upstream_call_id == call_id), None),
        next((o for o in others if o.index == place), None),
        next(iter(others), None),
    ):
        if found is not None:
            return found
    return None


def in_order(items: Sequence[OpenItem]) -> list[Item]:
    """The whole items as the server numbered them; those without a number stay where they came."""
    done = [(o.index, i, o.item) for i, o in enumerate(items) if o.item is not None]
    if all(index is not None for index, _, _ in done):
        done.sort(key=lambda entry: (entry[0] or 0, entry[1]))
    return [item for _, _, item in done]
