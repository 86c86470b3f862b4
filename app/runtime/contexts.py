"""The run's context object: made for each run by `TURNWIRE_CONTEXT`, carried over a pause by its own state."""

import asyncio
import importlib
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from app.domain.json_types import JsonObject
from app.domain.turn import Turn
from app.runtime.progress import TurnContext


class ContextFactoryError(Exception):
    """`TURNWIRE_CONTEXT` does not name something that can make a context."""


class ContextFactory:
    """Opens the context object of a run.

    The function gets `caller`, `user`, `conversation_id`, `turn_id` and `metadata` by keyword. It may be sync
    (it then runs in a thread), async, or an async context manager, whose exit runs when the run has ended.
    Without a function the context is a `TurnContext`.
    """

    def __init__(self, function: Callable[..., Any] | None = None) -> None:
        self._function: Callable[..., Any] = function or TurnContext

    @classmethod
    def load(cls, name: str | None) -> "ContextFactory":
        """From `module:function`. Raises ContextFactoryError that says what is wrong."""
        if name is None:
            return cls()
        module, _, attribute = name.partition(":")
        try:
            function = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError, ValueError) as error:
            raise ContextFactoryError(f"TURNWIRE_CONTEXT={name}: {error}") from error
        if not callable(function):
            raise ContextFactoryError(f"TURNWIRE_CONTEXT={name}: {type(function).__name__} is no function")
        return cls(function)

    @asynccontextmanager
    async def open(self, turn: Turn, state: JsonObject | None) -> AsyncIterator[Any]:
        """The context of one run; with `state`, what `to_state` gave before a pause is handed back."""
        async with self._made(turn) as context:
            yield _restored(context, state)

    @asynccontextmanager
    async def _made(self, turn: Turn) -> AsyncIterator[Any]:
        arguments = {
            "caller": turn.caller.name,
            "user": turn.caller.user,
            "conversation_id": turn.conversation_id,
            "turn_id": turn.id,
            "metadata": dict(turn.metadata),
        }
        if self._function is TurnContext or inspect.isclass(self._function):
            yield self._function(**arguments)
            return
        if inspect.iscoroutinefunction(self._function) or _makes_manager(self._function):
            made = self._function(**arguments)
        else:
            made = await asyncio.to_thread(self._function, **arguments)
        if inspect.isawaitable(made):
            made = await made
        if isinstance(made, AbstractAsyncContextManager):
            async with made as context:
                yield context
        else:
            yield made


def saved(context: Any) -> JsonObject:
    """What the context says of itself for a pause: its `to_state()`, an object; {} if it has none."""
    to_state = getattr(context, "to_state", None)
    return dict(to_state()) if callable(to_state) else {}


def _restored(context: Any, state: JsonObject | None) -> Any:
    from_state = getattr(context, "from_state", None)
    if state is None or not callable(from_state):
        return context
    restored = from_state(state)
    return context if restored is None else restored


def _makes_manager(function: Callable[..., Any]) -> bool:
    """True for what `@asynccontextmanager` made: calling it runs nothing yet."""
    return inspect.isasyncgenfunction(inspect.unwrap(function))
