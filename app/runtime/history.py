"""What a run must know of its conversation: its history for the model, the ids that are taken, who made what.

A conversation may be long: call these on a thread.
"""

from collections.abc import Sequence

from app.domain.conversation import NewItem, StoredItem
from app.domain.history import newest, repaired
from app.domain.json_types import Item
from app.domain.ports import RunJob


def model_history(before: Sequence[StoredItem], limit: int) -> list[Item]:
    """What came before, as the model gets it: valid for a strict provider, the newest `limit` items."""
    return newest(repaired(stored.item for stored in before), limit)


def known(job: RunJob) -> tuple[set[str], dict[str, str]]:
    """Every item id and call id that is taken, and which upstream made what, by these ids."""
    taken: set[str] = set()
    origins: dict[str, str] = {}
    everything: tuple[StoredItem | NewItem, ...] = (
        *job.unfolded,
        *job.history,
        *job.recorded,
        *job.prepared.input_items,
    )
    for each in everything:
        for name in (each.id, each.item.get("id"), each.item.get("call_id")):
            if isinstance(name, str):
                taken.add(name)
                if each.origin is not None:
                    origins[name] = each.origin
    return taken, origins
