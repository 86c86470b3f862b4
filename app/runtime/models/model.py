"""An SDK model over one of our upstreams: it retries, reports what happens to the observer, and hands the SDK
whole items only. Deltas bypass the SDK's queue: that is a tenth of the cost, and in true order.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from agents import Handoff, Model, ModelResponse, ModelSettings, ModelTracing, Tool, generation_span
from agents.agent_output import AgentOutputSchemaBase
from agents.items import TResponseInputItem, TResponseStreamEvent
from anyio import to_thread
from openai.types.responses.response_prompt_param import ResponsePromptParam

from app.domain.json_types import Item
from app.domain.usage import TokenCounts
from app.runtime.failures import UpstreamFailure
from app.runtime.models.backoff import delay_s
from app.runtime.models.chat_completions import ChatDecoder
from app.runtime.models.decoding import finish
from app.runtime.models.null_observer import NullObserver
from app.runtime.models.outgoing import call_ids, is_light
from app.runtime.models.past import ReadyPast
from app.runtime.models.reply import CutShort, Decoder, Reply
from app.runtime.models.requests import ModelRequest, native_input, outgoing
from app.runtime.models.responses import ResponsesDecoder
from app.runtime.models.sdk_objects import completed_events, model_response, unfenced
from app.runtime.models.transport import Outgoing, RefusedRequest, Upstream
from app.runtime.observer import ModelCallObserver, current_scope

NEVER: Final = float("inf")


class UpstreamModel(Model):
    """One model of an upstream. Cheap to make: it holds no connection of its own.

    Both ways to call it stream, so that a nested agent shows what it does and a cancel closes the socket.
    """

    def __init__(
        self,
        upstream: Upstream,
        name: str,
        *,
        is_named: bool = True,
        sent_as: str | None = None,
        defaults: ModelSettings | None = None,
    ) -> None:
        """`sent_as`: what the upstream calls it; `defaults`: settings that neither turn nor agent sets."""
        self.upstream = upstream
        self.model = name
        self._is_named = is_named
        self._sent_as = sent_as or name
        self._defaults = defaults

    @property
    def sent_as(self) -> str:
        """What the upstream calls it."""
        return self._sent_as

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r}, upstream={self.upstream.name!r})"

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff[Any, Any]],
        tracing: ModelTracing,
        *,
        previous_response_id: str | None = None,
        conversation_id: str | None = None,
        prompt: ResponsePromptParam | None = None,
    ) -> ModelResponse:
        is_whole = previous_response_id is None and conversation_id is None
        items, past = await self._items(input, is_whole=is_whole)
        request = ModelRequest(
            self._sent_as,
            self._is_named,
            system_instructions,
            items,
            self._settings(model_settings),
            tools,
            output_schema,
            handoffs,
            previous_response_id,
            conversation_id,
            prompt,
            past,
        )
        return model_response(await self._reply(request, tracing))

    async def stream_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff[Any, Any]],
        tracing: ModelTracing,
        *,
        previous_response_id: str | None = None,
        conversation_id: str | None = None,
        prompt: ResponsePromptParam | None = None,
    ) -> AsyncIterator[TResponseStreamEvent]:
        is_whole = previous_response_id is None and conversation_id is None
        items, past = await self._items(input, is_whole=is_whole)
        request = ModelRequest(
            self._sent_as,
            self._is_named,
            system_instructions,
            items,
            self._settings(model_settings),
            tools,
            output_schema,
            handoffs,
            previous_response_id,
            conversation_id,
            prompt,
            past,
        )
        reply = await self._reply(request, tracing)
        for event in completed_events(reply, self.model):
            yield event

    def _settings(self, given: ModelSettings) -> ModelSettings:
        return self._defaults.resolve(given) if self._defaults is not None else given

    async def _items(
        self, input: str | list[TResponseInputItem], *, is_whole: bool
    ) -> tuple[list[Item], ReadyPast | None]:
        scope = current_scope.get()

        def native(items: Sequence[Item]) -> Sequence[Item]:
            return items if scope is None else scope.native(items, self.upstream.name)

        def prepared() -> tuple[list[Item], ReadyPast | None]:
            return native_input(input, native, self.upstream, is_whole=is_whole)

        return prepared() if is_light(input) else await to_thread.run_sync(prepared, abandon_on_cancel=True)

    async def _reply(self, request: ModelRequest, tracing: ModelTracing) -> Reply:
        """One model call. The span is open only while nothing is yielded: its token belongs to one context."""
        if (scope := current_scope.get()) is not None:
            await scope.permit(self.model, request.instructions, request.items, request.tools)
        with generation_span(model=self.model, disabled=tracing.is_disabled()) as span:
            if tracing.include_data():
                span.span_data.input = list(request.items)
            # In a task of its own: a read wakes that alone, and not all the SDK's calls above this one.
            try:
                reply = await asyncio.create_task(_Call(self.upstream, request, self.model).run())
            except UpstreamFailure as failure:
                span.set_error({"message": failure.code, "data": None})
                raise
            if tracing.include_data():
                span.span_data.output = list(reply.output)
            if reply.counts is not None:
                span.span_data.usage = {
                    "input_tokens": reply.counts.input_tokens,
                    "output_tokens": reply.counts.output_tokens,
                }
            if request.output_schema is not None and not request.output_schema.is_plain_text():
                reply.output = unfenced(reply.output)
            return reply


class _Call:
    """One model call: as many requests as it takes, from exactly the same state."""

    def __init__(self, upstream: Upstream, request: ModelRequest, name: str) -> None:
        """`name` is what we call the model."""
        self._upstream = upstream
        self._request = request
        self._name = name
        self._retries = 0
        self._renewed = False
        self._was_empty = False

    def _begun(self) -> ModelCallObserver:
        scope = current_scope.get()
        if scope is None:
            return NullObserver(call_ids(self._request.items))
        handoffs = frozenset(h.tool_name for h in self._request.handoffs)
        return scope.model_call(self._name, self._upstream.name, handoffs)

    async def _written(self) -> Outgoing:
        """The request as bytes. A long one is written in a thread: the loop has other turns to serve."""
        if is_light(self._request.items):
            return outgoing(self._request, self._upstream)
        return await to_thread.run_sync(outgoing, self._request, self._upstream, abandon_on_cancel=True)

    async def run(self) -> Reply:
        self._outgoing = await self._written()
        self._observer = self._begun()
        decoder = self._decoder()
        try:
            reply = await self._attempt(decoder)
            while reply is None:
                decoder = self._decoder()
                reply = await self._attempt(decoder)
        except BaseException as error:
            counts = error.counts if isinstance(error, UpstreamFailure) else decoder.counts
            self._observer.failed(counts)
            raise
        await self._observer.completed(reply.output, reply.counts)
        return reply

    def _decoder(self) -> Decoder:
        limit = self._upstream.limits.max_message_bytes
        if self._upstream.wire == "chat_completions":
            return ChatDecoder(self._observer, upstream=self._upstream.name, max_item_size=limit)
        return ResponsesDecoder(self._observer, max_item_size=limit)

    async def _attempt(self, decoder: Decoder) -> Reply | None:
        """Send the request once. None: send it again."""
        try:
            request_id = await self._upstream.exchange(self._outgoing, decoder)
            reply = finish(decoder)
        except UpstreamFailure as failure:
            failure.counts = failure.counts or decoder.counts
            self._observer.request_failed(failure.code)
            if isinstance(failure, CutShort) and not decoder.shown and self._asks_once_more(decoder.counts):
                return None
            if not await self._may_go_on(failure, decoder):
                raise
            return None
        reply.request_id = request_id
        if reply.is_empty and not self._accepts_empty(reply):
            return None
        decoder.accept()
        return reply

    async def _may_go_on(self, failure: UpstreamFailure, decoder: Decoder) -> bool:
        """Mend what can be mended, else wait if the failure may pass; False if it is final."""
        if decoder.shown:
            return False
        if isinstance(failure, RefusedRequest):
            if await self._asks_without_stream_options(failure):
                return True
            if failure.status == 401 and failure.access is not None and not self._renewed:
                self._renewed = True
                if await self._upstream.renew(failure.access):
                    return True
        return failure.transient and await self._wait(failure)

    async def _asks_without_stream_options(self, failure: RefusedRequest) -> bool:
        asked = b'"stream_options"' in self._outgoing.body
        refused = asked and 400 <= (failure.status or 0) < 500 and "stream_options" in failure.said
        if not refused or self._upstream.wire != "chat_completions":
            return False
        self._upstream.refuses_stream_options = True
        self._outgoing = await self._written()
        return b'"stream_options"' not in self._outgoing.body

    async def _wait(self, failure: UpstreamFailure) -> bool:
        """Wait for the next retry. False if there is none left, or none before the turn's time is up."""
        limits = self._upstream.limits
        scope = current_scope.get()
        deadline = scope.deadline if scope is not None else NEVER
        if self._retries >= limits.retries:
            return False
        self._retries += 1
        chance = random.random()  # noqa: S311 - it spreads retries and guards nothing
        delay = delay_s(self._retries, failure.retry_after_s, chance)
        if asyncio.get_running_loop().time() + delay >= deadline:
            return False
        if failure.counts is not None:
            self._observer.attempt_failed(failure.counts)
        self._observer.warn(
            "upstream_retry",
            f"{failure.message}; retry {self._retries} of {limits.retries} in {delay:.1f} s",
        )
        await asyncio.sleep(delay)
        return True

    def _accepts_empty(self, reply: Reply) -> bool:
        """An empty answer is asked for once more; then it counts if it was billed, else the call fails."""
        asks_once_more = self._asks_once_more(reply.counts)
        if not asks_once_more and reply.counts is not None and reply.counts.output_tokens > 0:
            return True
        self._observer.request_failed("empty_completion")
        if asks_once_more:
            return False
        raise UpstreamFailure("empty_completion", "The model answered nothing, twice", counts=reply.counts)

    def _asks_once_more(self, counts: TokenCounts | None) -> bool:
        """After an attempt in which nothing came, once."""
        if self._was_empty:
            return False
        self._was_empty = True
        self._observer.attempt_failed(counts)
        self._observer.warn("empty_attempt", "The model answered nothing; it is asked once more")
        return True
