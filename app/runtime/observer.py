"""Where models and tools report what happens, in true order, and how they find the turn they work for.

The SDK's own event stream delivers tool calls late, the outputs of a step together with the slowest, and
nothing of nested agents. So events are tapped at the model and at the tools: a context variable leads from
wherever code runs to the scope of its run, and each model call gets an observer from it.
"""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Literal, Protocol

from agents import Tool

from app.domain.events import Executor
from app.domain.json_types import Item, JsonObject
from app.domain.usage import TokenCounts


class ModelCallObserver(Protocol):
    """Watches one model call. All methods but `completed` are synchronous and never raise.

    Item ids and call ids are claimed first, and the claimed ones are used everywhere after: in reports, in
    what the SDK is given, in history. A started item needs no explicit end on failure: whoever opened the
    observer closes what is left open.
    """

    def claim_item_id(self, upstream_id: str | None) -> str:
        """An id unique in the conversation: the upstream's own if it is usable, else a new one."""
        ...

    def claim_call_id(self, upstream_id: str | None) -> str:
        """The same for a call id: 1 to 64 of `A-Za-z0-9_-`, unique in the conversation."""
        ...

    def text_delta(self, item_id: str, delta: str) -> None:
        """A piece of a message's text; the first one (or a refusal's) starts the message."""
        ...

    def refusal_delta(self, item_id: str, delta: str) -> None: ...

    def annotation(self, item_id: str, annotation: JsonObject) -> None: ...

    def reasoning_delta(self, item_id: str, kind: Literal["summary", "text"], delta: str) -> None: ...

    def call_started(self, item_id: str, call_id: str, name: str) -> None:
        """A function call of which at least the name is known. Whether it is a handoff, a client's or the
        server's tool is for the observer to know."""
        ...

    def arguments_delta(self, call_id: str, delta: str) -> None: ...

    def item_done(self, item_id: str, item: Item) -> None:
        """An output item is whole: a message, reasoning, a function call, a hosted tool's call.

        Text and reasoning that came without deltas is reported from it.
        """
        ...

    def hosted_call_started(self, item_id: str, call_id: str, tool: str, executor: Executor) -> None:
        """A tool that the provider runs itself (`web_search`, `code_interpreter`…) has begun."""
        ...

    def warn(self, code: str, message: str) -> None: ...

    def request_failed(self, code: str) -> None:
        """A request of this call has failed, by this code of turn errors; for the figures, once each. Whether
        another one follows is told by `attempt_failed` or `failed`."""
        ...

    def attempt_failed(self, counts: TokenCounts | None) -> None:
        """A request ended without a response and another one follows: what was open is closed as partial."""
        ...

    async def completed(self, output: list[Item], counts: TokenCounts | None) -> None:
        """The response is whole. Returns when its items are durable: the SDK may run its tools then.

        `counts` is None if the provider reported none.
        """
        ...

    def failed(self, counts: TokenCounts | None) -> None:
        """The call ended without a response, by error or cancel; `counts` is what was reported even so."""
        ...


class RunScope(Protocol):
    """The run that code works for: a top agent's, or that of an agent that runs as a tool."""

    def model_call(
        self, model: str, upstream: str, handoffs: frozenset[str] = frozenset()
    ) -> ModelCallObserver:
        """Begin a model call (a step). `upstream` names who answers, for `NewItem.origin`; `handoffs` are the
        tool names of the handoffs that the model may choose (`Handoff.tool_name`): their calls are no tools."""
        ...

    async def permit(
        self, model: str, instructions: str | None, items: Sequence[Item], tools: Sequence[Tool]
    ) -> None:
        """Asked before a model call begins, which is offered these tools. Raises PolicyDenied."""
        ...

    async def tool_denied(self, tool: str, call_id: str, arguments: str) -> str | None:
        """Asked before a tool call begins: why the policy forbids it, None if it does not."""
        ...

    def native(self, items: Sequence[Item], upstream: str) -> Sequence[Item]:
        """The items of a request as that upstream may get them: without what another one added to them."""
        ...

    @property
    def deadline(self) -> float:
        """The event loop's time at which the turn times out: no retry waits beyond it."""
        ...


current_scope: ContextVar[RunScope | None] = ContextVar("turnwire_run_scope", default=None)
