import asyncio
import sys
from collections.abc import AsyncIterator

import anyio
import anyio.lowlevel
import pytest

from app.runtime.containment import AgentCodeExited, contained, contained_task, uncancelled
from app.runtime.observer import current_scope

pytestmark = pytest.mark.anyio


@pytest.fixture
async def in_a_run(anyio_backend: str) -> AsyncIterator[None]:
    """The factory wraps what is made while `current_scope` is set: any scope will do."""
    loop = asyncio.get_running_loop()
    loop.set_task_factory(contained_task)
    yield
    loop.set_task_factory(None)


def scoped() -> None:
    current_scope.set(object())  # type: ignore[arg-type]


async def leave() -> None:
    sys.exit(3)


async def test_a_task_of_a_run_that_exits_fails_alone(in_a_run: None) -> None:
    scoped()
    with pytest.raises(AgentCodeExited, match="SystemExit was raised") as raised:
        await asyncio.create_task(leave())
    assert isinstance(raised.value.__cause__, SystemExit)


async def test_a_task_that_exits_when_it_is_cancelled_fails_alone(in_a_run: None) -> None:
    async def stubborn() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            sys.exit(4)

    scoped()
    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(AgentCodeExited):
        await task


async def test_a_task_that_is_cancelled_before_its_first_step_leaves_no_warning(in_a_run: None) -> None:
    scoped()
    task = asyncio.create_task(leave())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_groups_of_anyio_work_in_tasks_of_a_run(in_a_run: None) -> None:
    async def work() -> str:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep_forever)
            await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        with anyio.move_on_after(0):
            await anyio.sleep_forever()
        return "done"

    scoped()
    assert await asyncio.create_task(work()) == "done"


async def test_tasks_outside_of_a_run_are_asyncios_own(in_a_run: None) -> None:
    async def work() -> None: ...

    coroutine = work()
    task = asyncio.create_task(coroutine)
    assert task.get_coro() is coroutine
    await task


async def test_exceptions_and_cancellations_pass() -> None:
    async def wrong() -> None:
        raise ValueError("wrong")

    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(ValueError, match="wrong"):
        await contained(wrong())
    with pytest.raises(asyncio.CancelledError):
        await contained(cancelled())
    with pytest.raises(AgentCodeExited):
        await contained(leave())


async def test_only_a_real_cancellation_is_one() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(AgentCodeExited):
        await uncancelled(cancelled())
    task = asyncio.create_task(uncancelled(asyncio.get_running_loop().create_future()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
