"""What a run must know of its conversation: its history for the model, the ids that are taken, who made what.

A conversation may be long: see `looked_through`.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar, TypeVarTuple

from anyio import to_thread

from app.domain.conversation import NewItem, StoredItem
from app.domain.history import newest, repaired
from app.domain.json_types import Item
from app.domain.ports import RunJob
from app.runtime.models.outgoing import LIGHT_ITEMS, is_light

T = TypeVar("T")
Args = TypeVarTuple("Args")


async def looked_through(items: Sequence[StoredItem | NewItem], work: Callable[[*Args], T], *args: *Args) -> T:
    """What `work` makes of these items: on a thread, unless they take less than a thread would."""
    light = len(items) <= LIGHT_ITEMS and is_light([each.item for each in items])
    return work(*args) if light else await to_thread.run_sync(work, *args)


def everything(job: RunJob) -> tuple[StoredItem | NewItem, ...]:
    return (*job.unfolded, *job.history, *job.recorded, *job.prepared.input_items)


def model_history(before: Sequence[StoredItem], limit: int) -> list[Item]:
    """What came before, as the model gets it: valid for a strict provider, the newest `limit` items."""
    return newest(repaired(stored.item for stored in before), limit)


def known(items: Sequence[StoredItem | NewItem]) -> tuple[set[str], dict[str, str]]:
    """Every item id and call id that is taken, and which upstream made what, by these ids."""
    taken: set[str] = set()
    origins: dict[str, str] = {}
    for each in items:
        for name in (each.id, each.item.get("id"), each.item.get("call_id")):
            if isinstance(name, str):
                taken.add(name)
                if each.origin is not None:
                    origins[name] = each.origin
    return taken, origins
