"""Removes what is older than the settings keep: the events of ended turns, and whole conversations."""

import logging
from datetime import timedelta

import anyio

from app.domain.ports import ArtifactKeeper, Store
from app.domain.turn import now
from app.errors import StoreUnavailable

logger = logging.getLogger(__name__)

SWEEP_EVERY_S = 600.0


class Retention:
    """`events` counts from a turn's end, `conversations` from the last activity; None keeps them for ever."""

    def __init__(
        self,
        store: Store,
        artifacts: ArtifactKeeper,
        *,
        events: timedelta,
        conversations: timedelta | None = None,
    ) -> None:
        self._store = store
        self._artifacts = artifacts
        self._events = events
        self._conversations = conversations

    async def sweep(self) -> tuple[int, int]:
        """Remove what is due, in small transactions; returns how many turns and conversations it was."""
        turns = await self._store.expire_events(now() - self._events)
        conversations = 0
        if self._conversations is not None:
            conversations = await self._store.expire_conversations(now() - self._conversations)
        await self._artifacts.sweep()
        if turns or conversations:
            logger.info("old events of %d turns and %d conversations were removed", turns, conversations)
        return turns, conversations

    async def sweep_for_ever(self) -> None:
        while True:
            try:
                await self.sweep()
            except (StoreUnavailable, OSError):
                logger.warning("old events could not be removed; the next sweep tries again")
            except Exception:
                logger.exception("old events could not be removed; the next sweep tries again")
            await anyio.sleep(SWEEP_EVERY_S)
