"""Conversations: made, read, changed, forked, removed, and followed from turn to turn."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from anyio import to_thread

from app.domain.caller import Caller
from app.domain.conversation import Conversation, Page, PageRequest, StoredItem
from app.domain.events import LogEntry
from app.domain.ids import ConversationId, TurnId, new_conversation_id
from app.domain.json_types import JsonObject
from app.domain.ports import ArtifactKeeper, EventLog, Runtime, Store
from app.domain.turn import Turn
from app.errors import AgentNotFound, InvalidEventId, NotFound


class Conversations(ABC):
    """The part of the service that is about conversations."""

    def __init__(self, store: Store, logs: EventLog, runtime: Runtime, artifacts: ArtifactKeeper) -> None:
        self._store = store
        self._logs = logs
        self._runtime = runtime
        self._artifacts = artifacts

    @abstractmethod
    async def _stop_conversation(self, conversation_key: int) -> None: ...

    @abstractmethod
    def _now(self, turn: Turn) -> Turn: ...

    async def create_conversation(
        self,
        caller: Caller,
        conversation_id: ConversationId | None,
        *,
        agent: str | None,
        metadata: dict[str, str],
        items: Sequence[JsonObject],
    ) -> Conversation:
        self._check_agent(agent)
        seeds = await to_thread.run_sync(self._runtime.seed_items, items)
        return await self._store.create_conversation(
            caller, conversation_id or new_conversation_id(), agent=agent, metadata=metadata, items=seeds
        )

    async def conversation(self, caller: Caller, conversation_id: str) -> Conversation:
        return await self._store.conversation(caller, conversation_id)

    async def conversations(self, caller: Caller, page: PageRequest) -> Page[Conversation]:
        return await self._store.conversations(caller, page)

    async def update_conversation(
        self, caller: Caller, conversation_id: str, changes: JsonObject
    ) -> Conversation:
        self._check_agent(changes.get("agent"))
        conversation = await self._store.conversation(caller, conversation_id)
        return await self._store.update_conversation(conversation.key, changes)

    async def delete_conversation(self, caller: Caller, conversation_id: str) -> None:
        conversation = await self._store.conversation(caller, conversation_id)
        await self._stop_conversation(conversation.key)
        files = await self._artifacts.of_conversation(conversation.key)
        await self._store.delete_conversation(conversation.key)
        await self._artifacts.remove(files)

    async def fork_conversation(
        self, caller: Caller, conversation_id: str, *, after_turn: TurnId | None, whole: bool
    ) -> Conversation:
        source = await self._store.conversation(caller, conversation_id)
        return await self._store.fork_conversation(
            source, new_conversation_id(), after_turn=after_turn, whole=whole
        )

    async def items(self, caller: Caller, conversation_id: str, page: PageRequest) -> Page[StoredItem]:
        conversation = await self._store.conversation(caller, conversation_id)
        return await self._store.items(conversation.key, page)

    # following

    async def check_follow(self, caller: Caller, conversation_id: str, after: tuple[str, int] | None) -> None:
        await self._first_followed(caller, conversation_id, after)

    async def follow(
        self, caller: Caller, conversation_id: str, after: tuple[str, int] | None
    ) -> AsyncGenerator[tuple[TurnId, list[LogEntry]], None]:
        conversation, turn, seq = await self._first_followed(caller, conversation_id, after)
        key = turn.key if turn else await self._store.newest_turn_key(conversation.key)
        while True:
            if turn is not None:
                async with aclosing(self._whole_log(turn, seq)) as entries:
                    async for some in entries:
                        yield turn.id, some
                key, seq = turn.key, 0
            await self._logs.conversation_changed(conversation.key, key)
            turn = await self._store.next_turn(conversation.key, key)

    async def _whole_log(self, turn: Turn, after: int) -> AsyncGenerator[list[LogEntry], None]:
        """A turn's log to its terminal event: a pause is no end here."""
        while True:
            current = self._now(await self._store.turn(turn.caller, turn.id))
            async with aclosing(self._logs.tail(current, after)) as entries:
                async for some in entries:
                    after = some[-1].seq
                    yield some
            current = await self._store.turn(turn.caller, turn.id)
            if current.ended:
                return
            await self._logs.turn_changed(turn.id, after)

    async def _first_followed(
        self, caller: Caller, conversation_id: str, after: tuple[str, int] | None
    ) -> tuple[Conversation, Turn | None, int]:
        """Where following begins: the turn after whose event, the turn under way, or nothing yet."""
        conversation = await self._store.conversation(caller, conversation_id)
        if after is None:
            return conversation, await self._store.active_turn(conversation.key), 0
        turn_id, seq = after
        try:
            turn = self._now(await self._store.turn(caller, turn_id))
        except NotFound as error:
            raise InvalidEventId(f"There is no turn {turn_id!r} in this conversation.") from error
        if turn.conversation_key != conversation.key or seq > turn.last_event_id:
            raise InvalidEventId(f"There is no event {turn_id}:{seq} in this conversation.")
        await self._store.events(turn.key, seq, limit=1)
        return conversation, turn, seq

    def _check_agent(self, name: object) -> None:
        if name is not None and all(agent["name"] != name for agent in self._runtime.agents()):
            raise AgentNotFound(f"There is no agent {name!r}.")
