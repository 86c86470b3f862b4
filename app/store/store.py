"""The store port over one SQLite file: who does what on which thread."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future as ThreadFuture
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection

from app.domain.caller import Caller
from app.domain.conversation import Conversation, NewItem, Page, PageRequest, StoredItem
from app.domain.events import LogEntry
from app.domain.ids import ArtifactId, ConversationId, TurnId
from app.domain.json_types import JsonObject
from app.domain.pause import Answers, Asked
from app.domain.ports import (
    Admission,
    Admitted,
    EventBatch,
    IdempotencyKey,
    KnownAnswer,
    Settlement,
    StoredArtifact,
)
from app.domain.turn import Cancel, Turn, TurnStatus
from app.errors import TurnwireError
from app.store import artifacts, asked, conversations, events, items, moves, turns
from app.store import idempotency as keys
from app.store.admission import admit
from app.store.appends import Appends
from app.store.checkpointer import Checkpointer
from app.store.database import Database, path_of
from app.store.journal import Journal, left_behind
from app.store.packer import Packer
from app.store.readers import Readers
from app.store.recovery import bring_in
from app.store.schema import migrate
from app.store.writer import Work, Writer

T = TypeVar("T")

READY_S = 2.0
_EXPIRED_AT_ONCE = 20


@asynccontextmanager
async def open_store(database: str | Path, *, owner: str) -> AsyncIterator["SqliteStore"]:
    """Open, and migrate, the database of a path or `sqlite:///` URL; its folder must exist and be ours alone
    (`DataFolder`). `owner` names this process: running turns of any other owner are orphans.

    Raises DatabaseTooNew, UnsupportedDatabase, or what the driver raises for a file it cannot open.
    """
    file = Database(path_of(database))
    journal = await _in_thread(lambda: _opened(file))
    store = SqliteStore(file, owner, journal)
    store.begin()
    try:
        yield store
    finally:
        store.appends.hand_over()
        await _in_thread(store.stop)
        store.appends.close()


def _opened(file: Database) -> Journal:
    """The database as this version has it, with what an earlier process has left in the journal."""
    migrate(file)
    bring_in(file, left_behind(file.path))
    return Journal(file.path)


class SqliteStore:
    """See `app.domain.ports.Store`. A method whose caller is cancelled may still take place.

    Everything is called from the loop in which it was opened; nothing runs on it but bookkeeping.
    """

    def __init__(self, database: Database, owner: str, journal: Journal) -> None:
        loop = asyncio.get_running_loop()
        self._owner = owner
        self.writer = Writer(database, loop)
        self.appends = Appends(journal, self.writer, loop)
        self._readers = Readers(database, loop)
        self.packer = Packer(database, self.writer)
        self._checkpointer = Checkpointer(database)

    def begin(self) -> None:
        for worker in (self.writer, self._readers, self.packer, self._checkpointer):
            worker.start()

    def stop(self) -> None:
        """What waits is finished first. Blocks: for a thread that may wait."""
        for worker in (self.packer, self._readers, self.writer, self._checkpointer):
            worker.stop()

    def _read(self, work: Callable[[Connection], T]) -> asyncio.Future[T]:
        return self._readers.submit(work)

    def _write(self, work: Work[T], *, durable: bool = False) -> asyncio.Future[T]:
        self.appends.hand_over()
        return self.writer.submit(work, durable=durable)

    # --- conversations ---

    async def create_conversation(
        self,
        caller: Caller,
        conversation_id: ConversationId,
        *,
        agent: str | None,
        metadata: dict[str, str],
        items: Sequence[NewItem],
    ) -> Conversation:
        seeds = items
        return await self._write(
            lambda c: _create(c, caller, conversation_id, agent=agent, metadata=metadata, seeds=seeds)
        )

    async def conversation(self, caller: Caller, conversation_id: str) -> Conversation:
        return await self._read(lambda c: conversations.get(c, caller, conversation_id))

    async def find_conversation(self, caller: Caller, conversation_id: str) -> Conversation | None:
        return await self._read(lambda c: conversations.find(c, caller, conversation_id))

    async def conversations(self, caller: Caller, page: PageRequest) -> Page[Conversation]:
        return await self._read(lambda c: conversations.page(c, caller, page))

    async def update_conversation(self, key: int, changes: dict[str, Any]) -> Conversation:
        return await self._write(lambda c: conversations.change(c, key, changes))

    async def delete_conversation(self, key: int) -> None:
        """The events go first and in steps, so that a long history holds nobody up."""
        while await self._write(lambda c: conversations.remove_some_events(c, key, _EXPIRED_AT_ONCE)):
            pass
        await self._write(lambda c: conversations.remove(c, key))

    async def fork_conversation(
        self, source: Conversation, new_id: ConversationId, *, after_turn: TurnId | None, whole: bool
    ) -> Conversation:
        """The copy's items belong to no turn. A turn that is under way is left out of a whole copy."""
        return await self._write(lambda c: _fork(c, source, new_id, after_turn, whole))

    async def items(self, conversation_key: int, page: PageRequest) -> Page[StoredItem]:
        return await self._read(lambda c: items.page(c, conversation_key, page))

    async def history(self, conversation_key: int) -> list[StoredItem]:
        return await self._read(lambda c: items.visible(c, conversation_key))

    async def unfolded_history(self, conversation_key: int) -> list[StoredItem]:
        return await self._read(
            lambda c: items.unfolded(c, conversation_key, conversations.head_of(c, conversation_key))
        )

    async def context_tokens(self, turn_key: int) -> int | None:
        return await self._read(lambda c: turns.context_tokens_before(c, turn_key))

    async def turn_items(self, turn_key: int) -> list[NewItem]:
        return await self._read(lambda c: items.of_turn(c, turn_key))

    # --- turns ---

    async def known_answer(self, caller: Caller, idempotency: IdempotencyKey) -> KnownAnswer | None:
        return await self._read(lambda c: keys.find(c, caller, idempotency))

    async def remember_answer(
        self, caller: Caller, idempotency: IdempotencyKey, turn_key: int, after: int
    ) -> None:
        await self._write(lambda c: keys.add(c, caller, idempotency, turn_key, after))

    async def admit(self, admission: Admission) -> Admitted:
        """`first_batch` is called on the writer's thread."""
        return await self._write(lambda c: admit(c, admission, self._owner))

    async def turn(self, caller: Caller, turn_id: str) -> Turn:
        return await self._read(lambda c: turns.get(c, caller, turn_id))

    async def turns(
        self,
        caller: Caller,
        page: PageRequest,
        *,
        conversation_key: int | None = None,
        status: TurnStatus | None = None,
        agent: str | None = None,
    ) -> Page[Turn]:
        """Turns of a page come without their input (it is empty)."""
        return await self._read(
            lambda c: turns.page(c, caller, page, conversation_key=conversation_key, status=status, agent=agent)
        )

    async def active_turn(self, conversation_key: int) -> Turn | None:
        return await self._read(lambda c: turns.active(c, conversation_key))

    async def queued_turns(self, conversation_key: int) -> list[Turn]:
        return await self._read(lambda c: turns.unfinished(c, conversation_key, "queued"))

    async def newest_turn_key(self, conversation_key: int) -> int:
        return await self._read(lambda c: turns.newest_key(c, conversation_key))

    async def next_turn(self, conversation_key: int, after_key: int) -> Turn | None:
        return await self._read(lambda c: turns.after(c, conversation_key, after_key))

    async def start(self, turn: Turn, batch: EventBatch) -> bool:
        return await self._write(lambda c: moves.start(c, turn, batch, owner=self._owner))

    async def pause(self, turn: Turn, state: bytes, batch: EventBatch) -> None:
        await self._write(lambda c: moves.pause(c, turn, state, batch), durable=True)

    async def answer(self, turn: Turn, answers: Answers, batch: EventBatch) -> None:
        await self._write(lambda c: moves.answer(c, turn, answers, batch))

    async def resume(self, turn: Turn, answers: Answers, batch: EventBatch) -> bool:
        return await self._write(lambda c: moves.resume(c, turn, answers, batch, owner=self._owner))

    async def asked(self, turn_key: int) -> list[Asked]:
        return await self._read(lambda c: asked.of_turn(c, turn_key))

    async def paused_state(self, turn_key: int) -> tuple[bytes, Answers]:
        return await self._read(lambda c: turns.paused_state(c, turn_key))

    async def request_cancel(self, turn_key: int, cancel: Cancel) -> Cancel | None:
        return await self._write(lambda c: moves.request_cancel(c, turn_key, cancel))

    async def settle(self, settlement: Settlement) -> None:
        await self._write(lambda c: moves.settle(c, settlement), durable=True)
        self.packer.wake()

    async def orphans(self) -> list[Turn]:
        return await self._read(lambda c: turns.orphans(c, self._owner))

    async def waiting_conversations(self) -> list[int]:
        return await self._read(turns.waiting_conversations)

    async def paused_turns(self) -> list[Turn]:
        return await self._read(lambda c: turns.with_status(c, "paused"))

    async def overdue_turns(self, at: datetime, limit: int) -> list[Turn]:
        return await self._read(lambda c: turns.overdue(c, at, limit))

    async def approvals(self, caller: Caller, page: PageRequest, *, status: str) -> Page[JsonObject]:
        return await self._read(lambda c: asked.approvals(c, caller, page, status))

    # --- events ---

    def journal(self, batches: Sequence[tuple[int, EventBatch]]) -> None:
        self.appends.add([events.append_row(key, batch.entries) for key, batch in batches])

    def submit(self, turn_key: int, batch: EventBatch) -> asyncio.Future[None]:
        return self._write(lambda c: moves.record(c, turn_key, batch))

    async def append(self, turn_key: int, batch: EventBatch) -> None:
        await self.submit(turn_key, batch)

    async def events(
        self, turn_key: int, after: int, *, limit: int = 1000, max_bytes: int = 1 << 20
    ) -> list[LogEntry]:
        await self.appends.committed(turn_key)
        return await self._read(lambda c: events.after(c, turn_key, after, limit=limit, max_bytes=max_bytes))

    async def expire_events(self, before: datetime) -> int:
        expired = 0
        while found := await self._read(lambda c: events.to_expire(c, before, _EXPIRED_AT_ONCE)):
            for key in found:
                await self._write(partial(events.expire, turn_key=key))
            expired += len(found)
        return expired

    async def expire_conversations(self, before: datetime) -> int:
        expired = 0
        while found := await self._read(lambda c: conversations.to_expire(c, before, _EXPIRED_AT_ONCE)):
            for key in found:
                expired += await self._expire_conversation(key, before)
        return expired

    async def _expire_conversation(self, key: int, before: datetime) -> bool:
        """False if it has been used meanwhile."""
        some = partial(conversations.expire_some_events, key=key, before=before, limit=_EXPIRED_AT_ONCE)
        while await self._write(some):
            pass
        return await self._write(lambda c: conversations.expire(c, key, before))

    # --- artifacts ---

    async def add_artifact(
        self, turn_key: int, artifact: StoredArtifact, *, max_count: int, max_bytes: int
    ) -> None:
        await self._write(
            lambda c: artifacts.add(c, turn_key, artifact, max_count=max_count, max_bytes=max_bytes),
            durable=True,
        )

    async def artifacts(self, turn_key: int) -> list[StoredArtifact]:
        return await self._read(lambda c: artifacts.of_turn(c, turn_key))

    async def artifact(self, turn_key: int, artifact_id: str) -> StoredArtifact:
        return await self._read(lambda c: artifacts.get(c, turn_key, artifact_id))

    async def artifact_ids(self, conversation_key: int | None = None) -> list[ArtifactId]:
        return await self._read(lambda c: artifacts.ids(c, conversation_key))

    async def ready(self) -> bool:
        """True if a transaction can be had within two seconds; after a refusal, only if one can be written."""
        probe = _write_a_little if self.writer.failing else _nothing
        try:
            async with asyncio.timeout(READY_S):
                await self._write(probe)
        except (TurnwireError, TimeoutError):
            return False
        return True


def _create(
    connection: Connection,
    caller: Caller,
    conversation_id: ConversationId,
    *,
    agent: str | None,
    metadata: dict[str, str],
    seeds: Sequence[NewItem],
) -> Conversation:
    created = conversations.create(connection, caller, conversation_id, agent=agent, metadata=metadata)
    items.add(connection, created.key, None, seeds)
    return created


def _fork(
    connection: Connection,
    source: Conversation,
    new_id: ConversationId,
    after_turn: TurnId | None,
    whole: bool,
) -> Conversation:
    head: int | None = None
    if whole:
        head = turns.settled_head(connection, source.key)
    elif after_turn is not None:
        head = turns.key_in(connection, source.key, after_turn)
    copy = conversations.create(
        connection,
        source.caller,
        new_id,
        agent=source.agent,
        metadata=source.metadata,
        last_agent=turns.last_agent_at(connection, head),
    )
    items.copy_history(connection, source.key, copy.key, head)
    return copy


def _nothing(_connection: Connection) -> None:
    """BEGIN and COMMIT say enough."""


def _write_a_little(connection: Connection) -> None:
    connection.exec_driver_sql("PRAGMA user_version = 0")


async def _in_thread(work: Callable[[], T]) -> T:
    """Run on a thread of its own: the loop's executor may be full of tools that do not return."""
    done: ThreadFuture[T] = ThreadFuture()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is raised in the caller's task
            done.set_exception(error)

    threading.Thread(target=run, name="turnwire-store", daemon=True).start()
    return await asyncio.shield(asyncio.wrap_future(done))
