"""Wake-up calls by key, for whoever waits: take the signal, look whether there is anything, then wait."""

import asyncio
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

K = TypeVar("K")


class Signals(Generic[K]):
    """A signal lives as long as somebody holds it."""

    def __init__(self) -> None:
        self._waited_for: WeakValueDictionary[K, asyncio.Event] = WeakValueDictionary()

    def of(self, key: K) -> asyncio.Event:
        signal = self._waited_for.get(key)
        if signal is None:
            signal = self._waited_for[key] = asyncio.Event()
        return signal

    def set(self, key: K) -> None:
        if (signal := self._waited_for.pop(key, None)) is not None:
            signal.set()

    def set_all(self) -> None:
        for key in list(self._waited_for.keys()):
            self.set(key)
