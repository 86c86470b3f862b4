"""A time-out that every read moves."""

import asyncio

import pytest

from app.runtime.models.patience import Patience

pytestmark = pytest.mark.anyio
FOR_EVER_S = 5
SHORT_S = 0.05


async def test_it_ends_what_waits_too_long() -> None:
    with pytest.raises(TimeoutError):
        async with Patience(SHORT_S):
            await asyncio.sleep(FOR_EVER_S)


async def test_each_wait_moves_the_end() -> None:
    loop = asyncio.get_running_loop()
    async with Patience(SHORT_S) as patience:
        end = loop.time() + 3 * SHORT_S
        while loop.time() < end:
            patience.wait(SHORT_S)
            await asyncio.sleep(SHORT_S / 10)


async def test_a_shorter_wait_brings_the_end_nearer() -> None:
    async def waits() -> None:
        async with Patience(FOR_EVER_S) as patience:
            patience.wait(SHORT_S)
            await asyncio.sleep(FOR_EVER_S)

    with pytest.raises(TimeoutError):
        await waits()


async def test_after_its_block_it_ends_nothing() -> None:
    async with Patience(SHORT_S):
        pass
    await asyncio.sleep(2 * SHORT_S)


async def test_somebody_elses_cancel_stays_a_cancel() -> None:
    async def waits() -> None:
        async with Patience(FOR_EVER_S):
            await asyncio.sleep(FOR_EVER_S)

    task = asyncio.create_task(waits())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
