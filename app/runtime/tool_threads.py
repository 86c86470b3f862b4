"""The threads that sync tools run on, as the event loop's default executor.

The SDK runs a sync tool by `asyncio.to_thread`: on the loop's default executor, where the loop's DNS look-ups
wait behind it. asyncio and uvloop take only a `ThreadPoolExecutor` there, so this is one by type; its threads
are its own. They are daemons: a tool that never returns holds neither other tools, nor DNS, nor the exit.
A thread cannot be stopped: a job whose caller was cancelled is counted as abandoned until it ends.
"""

import functools
import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

RESOLVER_THREADS = 4
IDLE_S = 30.0
logger = logging.getLogger(__name__)


class ToolThreadsBusy(RuntimeError):
    """Every thread runs a tool, and as many as may wait are waiting."""


@dataclass(frozen=True, slots=True)
class LateEnd:
    """A tool that ended after its caller had gone: its result is dropped; `error` is what it raised."""

    name: str
    seconds: float
    error: BaseException | None


def log_late_end(end: LateEnd) -> None:
    outcome = "returned; its result was dropped" if end.error is None else f"raised {type(end.error).__name__}"
    logger.warning("abandoned tool %s ended after %.1f s: it %s", end.name, end.seconds, outcome)


class ToolThreads(ThreadPoolExecutor):
    """A daemon thread for each running job, up to `max_threads`; idle ones are used again.

    Beyond the bound, `max_waiting` jobs wait; one more is refused with ToolThreadsBusy. Look-ups that the loop
    submits have threads of their own. Use: `loop.set_default_executor(ToolThreads(64))`.
    """

    def __init__(
        self,
        max_threads: int,
        *,
        max_waiting: int | None = None,
        on_late_end: Callable[[LateEnd], None] = log_late_end,
    ) -> None:
        super().__init__(max_workers=max_threads)  # starts nothing: only its own submit would
        waiting = max_threads if max_waiting is None else max_waiting
        self._tools = _Lane("turnwire-tool", max_threads, waiting, on_late_end)
        self._resolver = _Lane("turnwire-resolver", RESOLVER_THREADS, 1024, on_late_end)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run `fn` on a thread. Raises ToolThreadsBusy, and RuntimeError after `shutdown`."""
        lane = self._resolver if _is_lookup(fn) else self._tools
        return lane.submit(_Job(lane, functools.partial(fn, *args, **kwargs), _name(fn)))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more jobs. Never waits for those that run, whatever `wait` says."""
        self._tools.close(cancel_futures)
        self._resolver.close(cancel_futures)

    @property
    def running(self) -> int:
        """Tools that are on a thread now, abandoned ones included."""
        return self._tools.running

    @property
    def abandoned(self) -> int:
        """Tools that are on a thread although nobody waits for them any more."""
        return self._tools.abandoned

    @property
    def waiting(self) -> int:
        return self._tools.waiting


class _Job(Future[Any]):
    """What `submit` gives back. A cancel that comes too late to stop the job marks it as abandoned."""

    def __init__(self, lane: "_Lane", call: Callable[[], Any], name: str) -> None:
        super().__init__()
        self.lane = lane
        self.call = call
        self.name = name
        self.started = 0.0

    def cancel(self) -> bool:
        """asyncio calls this when the task that awaits the job is cancelled."""
        if super().cancel():
            self.lane.drop(self)
            return True
        self.lane.abandon(self)
        return False


class _Lane:
    """One bounded set of threads and the jobs that wait for them. All state is behind `_changed`."""

    def __init__(
        self, name: str, max_threads: int, max_waiting: int, on_late_end: Callable[[LateEnd], None]
    ) -> None:
        self._name = name
        self._max_threads = max_threads
        self._max_waiting = max_waiting
        self._on_late_end = on_late_end
        self._changed = threading.Condition()
        self._jobs: deque[_Job] = deque()
        self._running: set[_Job] = set()
        self._abandoned: set[_Job] = set()
        self._threads = 0
        self._closed = False

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def abandoned(self) -> int:
        return len(self._abandoned)

    @property
    def waiting(self) -> int:
        """Jobs that no thread is about to take."""
        return max(0, len(self._jobs) - self._free)

    @property
    def _free(self) -> int:
        return self._threads - len(self._running)

    def submit(self, job: _Job) -> _Job:
        with self._changed:
            if self._closed:
                raise RuntimeError("the tool threads are shut down")
            if len(self._jobs) >= self._free:
                if self._threads < self._max_threads:
                    self._start_thread()
                elif self.waiting >= self._max_waiting:
                    raise ToolThreadsBusy(self._describe_load())
            self._jobs.append(job)
            self._changed.notify()
        return job

    def drop(self, job: _Job) -> None:
        """Free the place of a job that was cancelled while it waited."""
        with self._changed:
            if job in self._jobs:
                self._jobs.remove(job)

    def abandon(self, job: _Job) -> None:
        with self._changed:
            if job in self._running:
                self._abandoned.add(job)

    def close(self, cancel_waiting: bool) -> None:
        with self._changed:
            self._closed = True
            dropped = list(self._jobs) if cancel_waiting else []
            self._changed.notify_all()
        for job in dropped:
            job.cancel()

    def _start_thread(self) -> None:
        threading.Thread(target=self._work, name=self._name, daemon=True).start()
        self._threads += 1

    def _describe_load(self) -> str:
        return (
            f"all {self._max_threads} tool threads are busy ({self.abandoned} with tools that were cancelled "
            f"and have not returned) and {self.waiting} calls wait already: try again later"
        )

    def _work(self) -> None:
        while (job := self._next_job()) is not None:
            if job.set_running_or_notify_cancel():
                self._perform(job)
            else:
                self._end(job)

    def _next_job(self) -> _Job | None:
        """Wait for a job; None after a long idle time or a close: this thread then ends."""
        with self._changed:
            while not self._jobs:
                if self._closed or not (self._changed.wait(IDLE_S) or self._jobs):
                    self._threads -= 1
                    return None
            job = self._jobs.popleft()
            job.started = time.monotonic()
            self._running.add(job)
            return job

    def _perform(self, job: _Job) -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = job.call()
        except StopIteration:
            # No future takes one: whoever waits for it would wait for ever (PEP 479 does the same).
            error = RuntimeError("StopIteration was raised")
        except BaseException as raised:  # noqa: BLE001 - it belongs to the caller, as in every executor
            error = raised
        abandoned = self._end(job)
        if error is not None:
            job.set_exception(error)
        else:
            job.set_result(result)
        if abandoned:
            self._report(LateEnd(job.name, time.monotonic() - job.started, error))

    def _end(self, job: _Job) -> bool:
        with self._changed:
            self._running.discard(job)
            abandoned = job in self._abandoned
            self._abandoned.discard(job)
            return abandoned

    def _report(self, end: LateEnd) -> None:
        try:
            self._on_late_end(end)
        except Exception:  # a hook that fails must not cost a thread
            logger.exception("the hook for abandoned tools failed")


def _is_lookup(fn: Callable[..., Any]) -> bool:
    """True for what asyncio submits to resolve a name (in debug mode through a method of its own)."""
    if fn is socket.getaddrinfo or fn is socket.getnameinfo:
        return True
    return getattr(fn, "__name__", "") == "_getaddrinfo_debug"


def _name(fn: Callable[..., Any]) -> str:
    """The function's name; `asyncio.to_thread` wraps it as `partial(context.run, function, …)`."""
    if isinstance(fn, functools.partial):
        return _name(fn.args[0] if fn.args and callable(fn.args[0]) else fn.func)
    return getattr(fn, "__qualname__", None) or type(fn).__name__
