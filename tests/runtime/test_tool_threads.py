import asyncio
import logging
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncIterator, Iterator

import anyio
import pytest

from app.runtime.tool_threads import LateEnd, ToolThreads, ToolThreadsBusy
from tests.bounds import BOUND_S, PROCESS_S

pytestmark = pytest.mark.anyio


class Gate:
    """A tool that blocks until it is opened, and tells when it has begun."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.opened = threading.Event()

    def tool(self) -> str:
        self.begun.release()
        assert self.opened.wait(2 * BOUND_S)
        return "done"


class LateEnds:
    def __init__(self) -> None:
        self.seen: list[LateEnd] = []
        self.arrived = threading.Event()

    def __call__(self, end: LateEnd) -> None:
        self.seen.append(end)
        self.arrived.set()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.opened.set()


@pytest.fixture
def ends() -> LateEnds:
    return LateEnds()


@pytest.fixture
async def threads(ends: LateEnds) -> AsyncIterator[ToolThreads]:
    threads = ToolThreads(2, max_waiting=1, on_late_end=ends)
    asyncio.get_running_loop().set_default_executor(threads)
    yield threads
    threads.shutdown()


async def begun(gate: Gate, count: int = 1) -> None:
    """Wait on a thread that is nobody's pool until `count` tools have begun."""
    for _ in range(count):
        assert await anyio.to_thread.run_sync(lambda: gate.begun.acquire(timeout=BOUND_S))


async def test_a_tool_runs_on_the_loops_default_executor_and_gives_its_result(threads: ToolThreads) -> None:
    name = await asyncio.to_thread(lambda: threading.current_thread().name)
    assert name == "turnwire-tool"
    assert threads.running == 0


async def test_a_tool_that_raises_raises_at_its_caller(threads: ToolThreads) -> None:
    with pytest.raises(ZeroDivisionError):
        await asyncio.to_thread(divmod, 1, 0)


async def test_an_idle_thread_is_used_again(threads: ToolThreads) -> None:
    first = await asyncio.to_thread(threading.get_ident)
    with anyio.fail_after(BOUND_S):
        while await asyncio.to_thread(threading.get_ident) != first:
            pass


async def test_a_tool_does_not_wait_behind_a_blocked_one(threads: ToolThreads, gate: Gate) -> None:
    blocked = asyncio.create_task(asyncio.to_thread(gate.tool))
    await begun(gate)
    with anyio.fail_after(BOUND_S):
        assert await asyncio.to_thread(lambda: "through") == "through"
    assert threads.running == 1
    gate.opened.set()
    assert await blocked == "done"


async def test_beyond_the_bound_a_job_waits_and_the_next_is_refused(threads: ToolThreads, gate: Gate) -> None:
    blocked = [asyncio.create_task(asyncio.to_thread(gate.tool)) for _ in range(2)]
    await begun(gate, 2)
    waiting = asyncio.create_task(asyncio.to_thread(lambda: "waited"))
    await asyncio.sleep(0)
    assert threads.waiting == 1
    with pytest.raises(ToolThreadsBusy, match="all 2 tool threads are busy"):
        await asyncio.to_thread(lambda: "never")
    gate.opened.set()
    with anyio.fail_after(BOUND_S):
        assert await asyncio.gather(*blocked, waiting) == ["done", "done", "waited"]


async def test_a_job_cancelled_while_it_waits_never_runs_and_frees_its_place(
    threads: ToolThreads, gate: Gate
) -> None:
    ran: list[bool] = []
    blocked = [asyncio.create_task(asyncio.to_thread(gate.tool)) for _ in range(2)]
    await begun(gate, 2)
    waiting = asyncio.create_task(asyncio.to_thread(ran.append, True))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert threads.waiting == 0
    gate.opened.set()
    await asyncio.gather(*blocked)
    assert (ran, threads.abandoned) == ([], 0)


@pytest.mark.parametrize("debug", [False, True])
async def test_names_are_resolved_while_every_tool_thread_is_blocked(
    threads: ToolThreads, gate: Gate, debug: bool
) -> None:
    loop = asyncio.get_running_loop()
    loop.set_debug(debug)
    blocked = [asyncio.create_task(asyncio.to_thread(gate.tool)) for _ in range(2)]
    await begun(gate, 2)
    with anyio.fail_after(BOUND_S):
        assert await loop.getaddrinfo("localhost", 80)
        assert await loop.getnameinfo(("127.0.0.1", 80))
    assert threads.running == 2
    gate.opened.set()
    await asyncio.gather(*blocked)


async def test_a_tool_whose_caller_was_cancelled_is_abandoned_until_it_ends(
    threads: ToolThreads, gate: Gate, ends: LateEnds
) -> None:
    task = asyncio.create_task(asyncio.to_thread(gate.tool))
    await begun(gate)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (threads.running, threads.abandoned) == (1, 1)
    gate.opened.set()
    assert await anyio.to_thread.run_sync(lambda: ends.arrived.wait(BOUND_S))
    assert (threads.running, threads.abandoned) == (0, 0)
    (end,) = ends.seen
    assert end.name == "Gate.tool"
    assert end.error is None


async def test_a_hook_that_fails_costs_no_thread(gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    def fails(end: LateEnd) -> None:
        raise RuntimeError("broken hook")

    threads = ToolThreads(1, on_late_end=fails)
    loop = asyncio.get_running_loop()
    with caplog.at_level(logging.CRITICAL + 1):
        job = loop.run_in_executor(threads, gate.tool)
        await begun(gate)
        job.cancel()
        await asyncio.sleep(0)
        gate.opened.set()
        with anyio.fail_after(BOUND_S):
            assert await loop.run_in_executor(threads, lambda: "alive") == "alive"
    threads.shutdown()


async def test_shutdown_waits_for_nobody_and_takes_no_more(gate: Gate) -> None:
    threads = ToolThreads(1)
    running = threads.submit(gate.tool)
    await begun(gate)
    waiting = threads.submit(lambda: "never")
    threads.shutdown(wait=True, cancel_futures=True)
    assert running.running()
    assert waiting.cancelled()
    with pytest.raises(RuntimeError, match="shut down"):
        threads.submit(lambda: None)


@pytest.mark.parametrize("runner", ["asyncio", "uvloop"])
def test_a_blocked_tool_does_not_hold_the_exit_of_the_process(runner: str) -> None:
    script = f"""
        import asyncio, threading, {runner}
        from app.runtime.tool_threads import ToolThreads

        begun = threading.Event()

        def tool():
            begun.set()
            threading.Event().wait()

        async def main():
            asyncio.get_running_loop().set_default_executor(ToolThreads(2))
            task = asyncio.create_task(asyncio.to_thread(tool))
            while not begun.is_set():
                await asyncio.sleep(0.01)
            task.cancel()

        {runner}.run(main())
        print("over")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=PROCESS_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "over\n", "")
