"""What a run must know of its conversation: its history for the model, the ids that are taken, who made what.

A conversation may be long: call these on a thread.
"""

from collections.abc import Sequence

from app.domain.conversation import StoredItem
from app.domain.history import newest, repaired
from app.domain.json_types import Item
from app.domain.ports import RunJob


def model_history(before: Sequence[StoredItem], limit: int) -> list[Item]:
    """What came before, as the model gets it: valid for a strict provider, the newest `limit` items."""
    return newest(repaired(stored.item for stored in before), limit)


def known(job: RunJob) -> tuple[set[str], dict[str, str]]:
    """The ids that are taken, and who made what."""
    return _ids(job), _origins(job)


def _origins(job: RunJob) -> dict[str, str]:
    """Which upstream made what the conversation holds, by item id and call id."""
    stored = [(s.id, s.item, s.origin) for s in (*job.unfolded, *job.history)]
    new = [(n.id, n.item, n.origin) for n in job.recorded]
    origins: dict[str, str] = {}
    for item_id, item, origin in (*stored, *new):
        if origin is not None:
            origins[item_id] = origin
            origins |= {item[key]: origin for key in ("id", "call_id") if isinstance(item.get(key), str)}
    return origins


def _ids(job: RunJob) -> set[str]:
    """Every item id and call id that the conversation already holds."""
    stored = [(s.id, s.item) for s in (*job.unfolded, *job.history)]
    new = [(n.id, n.item) for n in (*job.recorded, *job.prepared.input_items)]
    ids: set[str] = set()
    for item_id, item in (*stored, *new):
        ids.add(item_id)
        ids |= {item[key] for key in ("id", "call_id") if isinstance(item.get(key), str)}
    return ids
