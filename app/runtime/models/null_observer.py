"""The observer of a model call that no turn watches: it says nothing and still hands out unique ids."""

from collections.abc import Iterable
from typing import Literal

from app.domain.events import Executor
from app.domain.ids import new_call_id, new_item_id
from app.domain.json_types import Item, JsonObject
from app.domain.usage import TokenCounts

MAX_ID = 64


class NullObserver:
    """Implements `observer.ModelCallObserver`. `taken` are the ids that the request's own input uses."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)

    def claim_item_id(self, upstream_id: str | None) -> str:
        return self._claim(upstream_id) or new_item_id()

    def claim_call_id(self, upstream_id: str | None) -> str:
        return self._claim(upstream_id) or new_call_id()

    def _claim(self, wanted: str | None) -> str | None:
        if not wanted or len(wanted) > MAX_ID or wanted in self._taken:
            return None
        self._taken.add(wanted)
        return wanted

    def text_delta(self, item_id: str, delta: str) -> None:
        pass

    def refusal_delta(self, item_id: str, delta: str) -> None:
        pass

    def annotation(self, item_id: str, annotation: JsonObject) -> None:
        pass

    def reasoning_delta(self, item_id: str, kind: Literal["summary", "text"], delta: str) -> None:
        pass

    def call_started(self, item_id: str, call_id: str, name: str) -> None:
        pass

    def arguments_delta(self, call_id: str, delta: str) -> None:
        pass

    def item_done(self, item_id: str, item: Item) -> None:
        pass

    def hosted_call_started(self, item_id: str, call_id: str, tool: str, executor: Executor) -> None:
        pass

    def warn(self, code: str, message: str) -> None:
        pass

    def request_failed(self, code: str) -> None:
        pass

    def attempt_failed(self, counts: TokenCounts | None) -> None:
        pass

    async def completed(self, output: list[Item], counts: TokenCounts | None) -> None:
        pass

    def failed(self, counts: TokenCounts | None) -> None:
        pass
