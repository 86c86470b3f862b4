"""The few places where the rooms meet: what `turns` asks of the store, the log and the runtime.

Everything here is typed and small on purpose. `store` implements `Store`, `event_log` implements `EventLog`
and `TurnLog`, `artifacts` implements `ArtifactKeeper`, `runtime` implements `Runtime`; `turns` is written
against these and nothing else.
"""

from app.domain.ports.artifacts import ArtifactKeeper, ArtifactRefused, StoredArtifact
from app.domain.ports.event_log import EventBatch, EventLog, LogCut, Taker, TurnLog
from app.domain.ports.runtime import (
    EventSink,
    Prepared,
    RunCompleted,
    RunControl,
    RunFailed,
    RunJob,
    RunOutcome,
    RunPaused,
    RunStopped,
    Runtime,
)
from app.domain.ports.store import Admission, Admitted, IdempotencyKey, KnownAnswer, Settlement, Store

__all__ = [
    "Admission",
    "Admitted",
    "ArtifactKeeper",
    "ArtifactRefused",
    "EventBatch",
    "EventLog",
    "EventSink",
    "IdempotencyKey",
    "KnownAnswer",
    "LogCut",
    "Prepared",
    "RunCompleted",
    "RunControl",
    "RunFailed",
    "RunJob",
    "RunOutcome",
    "RunPaused",
    "RunStopped",
    "Runtime",
    "Settlement",
    "Store",
    "StoredArtifact",
    "Taker",
    "TurnLog",
]
