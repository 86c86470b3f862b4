"""What was said before a turn, as one entry of the SDK's input.

The SDK copies, checks and compares every item of its input several times in each step, all of it on the event
loop: on a long history that is most of what a turn costs. It passes on what it takes for no item, so the
history goes in as one entry that only our models know, which put the items in its place.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from app.domain.json_types import Item


class Past:
    """The items before a turn, which do not change while a run goes on, as `domain.history.repaired` leaves
    them. It is no item, no mapping and no sequence: the SDK must not look into it.
    """

    __slots__ = ("_copies", "_ready", "items")

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self._copies: list[Item] | None = None
        self._ready: dict[object, ReadyPast] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.items)} items)"

    def __deepcopy__(self, memo: dict[int, Any]) -> "Past":
        return self

    def let_go(self) -> None:
        """The run has ended, and nobody looks here any more. What the SDK leaves behind of it are cycles: they
        wait for a full collection, and that takes the longer the more they hold."""
        self.items = ()
        self._copies = None
        self._ready.clear()

    @property
    def copies(self) -> list[Item]:
        """The items for code that is not ours, which may change what it gets: neither what is sent nor what a
        pause refers to changes with it."""
        if self._copies is None:
            self._copies = [item.copy() for item in self.items]
        return self._copies

    def ready(self, upstream: object, make: Callable[["Past"], "ReadyPast"]) -> "ReadyPast":
        """The past as an upstream may get it: made for the first step that asks it, the same in each later."""
        if upstream not in self._ready:
            self._ready[upstream] = make(self)
        return self._ready[upstream]


class ReadyPast:
    """What a request to one upstream begins with: the items, and how they were written for its wire.

    `stands_alone`: they are written the same whatever follows.
    """

    __slots__ = ("_written", "items", "stands_alone")

    def __init__(self, items: list[Item], *, stands_alone: bool) -> None:
        self.items = items
        self.stands_alone = stands_alone
        self._written: list[Any] | None = None

    def written(self, write: Callable[[list[Item]], list[Any]]) -> list[Any]:
        """The items on the wire, written once. Nobody may change them."""
        if self._written is None:
            self._written = write(self.items)
        return self._written


def expanded(entries: Iterable[Any]) -> list[Any]:
    """The entries, with the items of a past in its place."""
    result: list[Any] = []
    for entry in entries:
        if isinstance(entry, Past):
            result += entry.items
        else:
            result.append(entry)
    return result


def parted(entries: str | Sequence[Any]) -> tuple[Past | None, str | Sequence[Any]]:
    """The past in front of the entries, and what follows it."""
    if not isinstance(entries, str) and entries and isinstance(entries[0], Past):
        return entries[0], entries[1:]
    return None, entries
