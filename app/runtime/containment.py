"""What an agent's or a tool's code raises ends its turn at most, never the service.

`sys.exit()` in a tool, or a library that raises a BaseException of its own, would get out of the turn's task
and take the event loop with it: asyncio raises SystemExit and KeyboardInterrupt out of the loop itself, from
whatever task they came. The SDK makes tasks for tools and guardrails, and so does users' code: a task factory
contains the tasks that are made inside a run, and `contained` what is awaited in the turn's own task.
"""

import asyncio
from collections.abc import Awaitable, Coroutine, Generator
from types import TracebackType
from typing import Any, TypeVar

from app.runtime.observer import current_scope

T = TypeVar("T")


class AgentCodeExited(Exception):
    """An agent's or a tool's code raised what would end a process; the cause is what it raised."""


async def contained(work: Awaitable[T]) -> T:
    """The result of `work`. Raises AgentCodeExited for whatever is neither an Exception nor a cancellation."""
    try:
        return await work
    except (Exception, asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:
        raise exited(error) from error


async def uncancelled(work: Awaitable[T]) -> T:
    """The result of `work`. Raises AgentCodeExited if it ends as cancelled although nobody cancelled this task:
    the SDK passes over a guardrail that was cancelled."""
    try:
        return await work
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling() > 0:
            raise
        raise exited(error) from error


def exited(error: BaseException) -> AgentCodeExited:
    return AgentCodeExited(f"{type(error).__name__} was raised")


def contained_task(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T] | Generator[Any, None, T], **options: Any
) -> asyncio.Task[T]:
    """A task factory: `loop.set_task_factory(contained_task)`. Outside of a run a task is asyncio's own."""
    if current_scope.get() is not None and isinstance(work, Coroutine):
        work = _Contained(work)
    return asyncio.Task(work, loop=loop, **options)


class _Contained(Coroutine[Any, Any, T]):
    """A coroutine that raises what the one inside it raises, as `contained` does.

    No `async def`: one that is cancelled before its first step would leave the inner one never awaited.
    """

    def __init__(self, inner: Coroutine[Any, Any, T]) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        """`cr_running` and its like: anyio asks a task's coroutine whether it has started."""
        return getattr(self._inner, name)

    def __await__(self) -> Generator[Any, Any, T]:
        return self._inner.__await__()

    def send(self, value: Any) -> Any:
        try:
            return self._inner.send(value)
        except (Exception, asyncio.CancelledError):
            raise
        except BaseException as error:
            raise exited(error) from error

    def throw(
        self,
        kind: type[BaseException] | BaseException,
        value: BaseException | object = None,
        trace: TracebackType | None = None,
    ) -> Any:
        error = kind if isinstance(kind, BaseException) else kind(*(() if value is None else (value,)))
        try:
            return self._inner.throw(error.with_traceback(trace) if trace else error)
        except (Exception, asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as raised:
            raise exited(raised) from raised

    def close(self) -> None:
        self._inner.close()
