import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from datetime import timedelta

import pytest
from anyio import fail_after

from app.domain.events import LogEntry, TurnResumed
from app.domain.pause import Answers
from app.domain.ports import LogCut
from app.domain.turn import Turn, now
from app.errors import EventsExpired
from app.event_log import EventLogs
from app.event_log.live_log import LiveLog
from app.store import SqliteStore
from tests.bounds import BOUND_S
from tests.event_log.live import Listener, LiveScene, delta

pytestmark = pytest.mark.anyio


async def write(log: LiveLog, count: int, text: str = "x") -> None:
    """That many events of their own, in passes of one to five."""
    dice = random.Random(count)
    written = 0
    while written < count:
        for _ in range(min(dice.randint(1, 5), count - written)):
            log.append(delta(text, f"item_{written}"))
            written += 1
        await (log.flush() if dice.random() < 0.2 else asyncio.sleep(0))
    await log.flush()


async def resumed(live: LiveScene, paused: Turn) -> tuple[Turn, LiveLog]:
    log = live.logs.open(paused.id, turn_key=paused.key, next_seq=paused.last_event_id + 1)
    log.append(TurnResumed("approval", 2))
    first = log.take()
    running = replace(paused, status="running", pause=None, runs=2, last_event_id=first.last_seq)
    assert await live.store.resume(running, Answers(), first)
    log.publish(first)
    return running, log


async def read(logs: EventLogs, turn: Turn, after: int) -> list[int]:
    listener = Listener(logs, turn, after)
    with fail_after(BOUND_S):
        await listener.read()
    return listener.numbers


async def test_listener_follows_a_turn_to_its_end(live: LiveScene) -> None:
    turn, log = await live.begin()
    async with live.listening(turn) as listener:
        await write(log, 20)
        await live.end(turn, log)
        await listener.to_end()

    assert listener.numbers == list(range(1, 23))
    assert (listener.types[0], listener.types[-1]) == ("turn.started", "turn.completed")
    assert not listener.cut


async def test_listeners_each_from_their_own_place_miss_nothing_and_see_nothing_twice(live: LiveScene) -> None:
    turn, log = await live.begin()
    async with asyncio.TaskGroup() as tasks:
        listeners: list[Listener] = []
        for after in [0, 0, 1, 1]:
            listeners.append(Listener(live.logs, turn, after))
            tasks.create_task(listeners[-1].read())
        writer = tasks.create_task(write(log, 300))
        for after in (10, 100, 200):
            await listeners[0].to(after)
            listeners.append(Listener(live.logs, turn, after - 5))
            tasks.create_task(listeners[-1].read())
        await writer
        await live.end(turn, log)

    afters = [0, 0, 1, 1, 5, 95, 195]
    assert [listener.numbers for listener in listeners] == [list(range(a + 1, 303)) for a in afters]


class Takes:
    """A taker that takes what it is offered as its answers say, then everything."""

    def __init__(self, *answers: bool | Exception) -> None:
        self.seen: list[int] = []
        self._answers = list(answers)

    def __call__(self, entries: list[LogEntry]) -> bool:
        answer = self._answers.pop(0) if self._answers else True
        if isinstance(answer, Exception):
            raise answer
        if answer:
            self.seen += [entry.seq for entry in entries]
        return answer


async def followed(live: LiveScene, taker: Takes) -> list[int]:
    """What a listener is given beside what its taker took, of a turn of six events that come one by one."""
    turn, log = await live.begin()
    yielded: list[int] = []

    async def follow() -> None:
        yielded.extend(await read_all(live.logs.tail(turn, 0, taker=taker)))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(follow())
        await until_idle()
        for number in range(4):
            log.append(delta("x", f"item_{number}"))
            await until_idle()
        await live.end(turn, log)
    return yielded


async def read_all(tail: AsyncGenerator[list[LogEntry], None]) -> list[int]:
    async with aclosing(tail) as source:
        return [entry.seq async for entries in source for entry in entries]


async def until_idle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_listener_that_waits_is_not_woken_for_what_its_taker_takes(live: LiveScene) -> None:
    taker = Takes()

    assert await followed(live, taker) == [1]
    assert taker.seen == [2, 3, 4, 5, 6]


async def test_what_a_taker_does_not_take_is_given_to_its_listener(live: LiveScene) -> None:
    taker = Takes(True, False, True, False)

    assert await followed(live, taker) == [1, 3, 5]
    assert taker.seen == [2, 4, 6]


async def test_taker_is_not_offered_what_its_listener_has_already(live: LiveScene) -> None:
    turn, log = await live.begin()
    taker = Takes()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(read_all(live.logs.tail(turn, 2, taker=taker)))
        await until_idle()
        for number in range(2):
            log.append(delta("x", f"item_{number}"))
            await log.flush()
            await until_idle()
        await live.end(turn, log)

    assert taker.seen == [3, 4]


async def test_listener_that_was_let_in_stays_when_its_turn_goes_on(live: LiveScene) -> None:
    turn, log = await live.begin()
    async with aclosing(live.logs.tail(turn, 0, max_listeners=1)) as source:
        assert [entry.seq for entry in await anext(source)] == [1]
        paused = await live.pause(turn, log)
        running, log = await resumed(live, paused)
        async with live.listening(running) as other:
            await other.to(3)
            assert [entry.seq for entry in await anext(source)] == [2]
            assert [entry.seq for entry in await anext(source)] == [3]
            await live.end(running, log)
            assert [entry.seq for entry in await anext(source)] == [4]


async def test_what_a_taker_raises_is_its_listeners_and_nobody_elses(live: LiveScene) -> None:
    with pytest.raises(ExceptionGroup) as raised:
        await followed(live, Takes(True, ValueError("on purpose")))

    assert [str(error) for error in raised.value.exceptions] == ["on purpose"]


async def test_all_listeners_get_the_same_bytes_live_or_later(live: LiveScene) -> None:
    turn, log = await live.begin()
    async with live.listening(turn) as listener:
        await write(log, 50, text="é\n")
        ended = await live.end(turn, log)
        await listener.to_end()
    later = Listener(live.logs, ended, 0)
    await later.read()

    assert [entry.data for entry in later.entries] == [entry.data for entry in listener.entries]


async def test_slow_listener_reads_what_fell_behind_the_window_from_the_store(store: SqliteStore) -> None:
    live = LiveScene(store, EventLogs(store, window_bytes=2048))
    turn, log = await live.begin()
    async with live.listening(turn) as slow, live.listening(turn) as swift:
        await slow.to(1)
        slow.hold()
        await write(log, 200)
        await swift.to(201)
        assert not log.window.holds(50)
        slow.go_on()
        await live.end(turn, log)
        await slow.to_end()
        await swift.to_end()

    assert slow.numbers == swift.numbers == list(range(1, 203))


async def test_listener_that_is_behind_when_the_log_closes_still_gets_everything(store: SqliteStore) -> None:
    live = LiveScene(store, EventLogs(store, window_bytes=1024))
    turn, log = await live.begin()
    async with live.listening(turn) as listener:
        await listener.to(1)
        listener.hold()
        await write(log, 100)
        await live.end(turn, log)
        listener.go_on()
        await listener.to_end()

    assert listener.numbers == list(range(1, 103))


async def test_ended_turn_is_read_from_the_store(live: LiveScene) -> None:
    turn, log = await live.begin()
    await write(log, 10)
    ended = await live.end(turn, log)

    assert await read(live.logs, ended, 0) == list(range(1, 13))
    assert await read(live.logs, ended, 9) == [10, 11, 12]
    assert await read(live.logs, ended, 12) == []


async def test_expired_log_is_refused(live: LiveScene) -> None:
    turn, log = await live.begin()
    ended = await live.end(turn, log)
    await live.store.expire_events(now() + timedelta(hours=1))

    with pytest.raises(EventsExpired):
        await read(live.logs, ended, 0)


async def test_stream_ends_with_a_pause_and_a_resumed_turn_is_followed_from_there(live: LiveScene) -> None:
    turn, log = await live.begin()
    async with live.listening(turn) as listener:
        paused = await live.pause(turn, log)
        await listener.to_end()
    assert listener.types == ["turn.started", "turn.paused"]
    assert await read(live.logs, paused, 1) == [2]

    running, log = await resumed(live, paused)
    async with live.listening(running, after=2) as listener:
        await live.end(running, log)
        await listener.to_end()
    assert listener.numbers == [3, 4]


async def test_listener_that_sleeps_through_a_pause_goes_on_with_the_next_run(live: LiveScene) -> None:
    turn, log = await live.begin()
    async with live.listening(turn) as listener:
        await listener.to(1)
        listener.hold()
        log.append(delta("a"))
        await log.flush()
        paused = await live.pause(turn, log)
        running, log = await resumed(live, paused)
        listener.go_on()
        await listener.to(4)
        await live.end(running, log)
        await listener.to_end()

    assert listener.numbers == [1, 2, 3, 4, 5]


async def test_cut_log_breaks_its_listeners_and_is_no_clean_end_afterwards(live: LiveScene) -> None:
    turn, log = await live.begin()
    async with live.listening(turn) as listener:
        await listener.to(1)
        live.logs.cut(turn.id)
        await listener.to_end()
    assert listener.cut

    late = Listener(live.logs, turn, 0)
    await late.read()
    assert (late.numbers, late.cut) == ([1], True)
    assert log.is_cut


async def test_stopping_service_cuts_every_listener_that_is_left(live: LiveScene) -> None:
    running, _ = await live.begin("one")
    ended, log = await live.begin("two")
    await live.end(ended, log)
    async with live.listening(running) as listener:
        changed = asyncio.create_task(live.logs.conversation_changed(running.conversation_key, running.key))
        resumed = asyncio.create_task(live.logs.turn_changed(ended.id, 99))
        await listener.to(1)
        live.logs.cut_all()
        await listener.to_end()

    assert listener.cut
    for waiting in (changed, resumed):
        with fail_after(BOUND_S), pytest.raises(LogCut):
            await waiting


async def test_owner_is_called_each_time_the_last_listener_leaves(live: LiveScene) -> None:
    turn, _ = await live.begin()
    left: list[int] = []
    live.logs.on_last_listener_left(turn.id, lambda: left.append(live.logs.listeners(turn.id)))
    async with live.listening(turn) as first:
        await first.to(1)
        async with live.listening(turn) as second:
            await second.to(1)
            assert live.logs.listeners(turn.id) == 2
        assert (live.logs.listeners(turn.id), left) == (1, [])
    assert left == [0]
    async with live.listening(turn) as third:
        await third.to(1)

    assert left == [0, 0]


async def test_end_of_a_turn_is_no_desertion(live: LiveScene) -> None:
    turn, log = await live.begin()
    left: list[None] = []
    live.logs.on_last_listener_left(turn.id, lambda: left.append(None))
    async with live.listening(turn) as listener:
        await live.end(turn, log)
        await listener.to_end()

    assert left == []
    assert live.logs.listeners(turn.id) == 0


async def test_follower_of_a_conversation_learns_of_its_next_turn(live: LiveScene) -> None:
    turn, log = await live.begin()
    await live.end(turn, log)
    waiting = asyncio.create_task(live.logs.conversation_changed(turn.conversation_key, turn.key))
    await asyncio.sleep(0)
    await live.begin("another")
    assert not waiting.done()
    await live.begin()

    with fail_after(BOUND_S):
        await waiting
        await live.logs.conversation_changed(turn.conversation_key, turn.key)


async def test_follower_of_a_paused_turn_learns_that_it_goes_on(live: LiveScene) -> None:
    turn, log = await live.begin()
    paused = await live.pause(turn, log)
    waiting = asyncio.create_task(live.logs.turn_changed(turn.id, paused.last_event_id))
    await asyncio.sleep(0)
    running, log = await resumed(live, paused)
    with fail_after(BOUND_S):
        await waiting
    await live.end(running, log)

    with fail_after(BOUND_S):
        await live.logs.turn_changed(turn.id, paused.last_event_id)
