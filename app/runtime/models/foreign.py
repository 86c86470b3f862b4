"""Models that are not ours: an agent may bring any SDK model, and its turn is watched like any other."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from json import JSONDecodeError
from typing import Any

from agents import Handoff, Model, ModelResponse, ModelSettings, ModelTracing, Tool
from agents.agent_output import AgentOutputSchemaBase
from agents.items import TResponseInputItem, TResponseStreamEvent
from agents.retry import ModelRetryAdvice, ModelRetryAdviceRequest
from anyio import to_thread
from openai.types.responses.response_prompt_param import ResponsePromptParam
from pydantic import BaseModel, ValidationError

from app.domain.json_types import Item, JsonObject
from app.domain.usage import TokenCounts
from app.runtime.failures import UpstreamFailure, turn_error
from app.runtime.models.model import UpstreamModel
from app.runtime.models.null_observer import NullObserver
from app.runtime.models.outgoing import OUR_IDS, as_items, call_ids, is_light
from app.runtime.models.reply import Reply, protocol_failure
from app.runtime.models.responses import ResponsesDecoder
from app.runtime.models.sdk_objects import completed_events, model_response
from app.runtime.models.transport import MIB
from app.runtime.observer import ModelCallObserver, current_scope

_ITEM_EVENTS = frozenset({"response.output_item.done", "response.completed"})
_DELTAS = frozenset(
    {
        "response.output_text.delta",
        "response.refusal.delta",
        "response.reasoning_text.delta",
        "response.reasoning_summary_text.delta",
        "response.function_call_arguments.delta",
        "response.custom_tool_call_input.delta",
    }
)


class TappedModel(Model):
    """Wraps another SDK model: what it streams is reported to the observer and reaches the SDK, with our ids.

    `get_response` prefers the model's stream; a model that has none is asked whole.
    """

    def __init__(self, inner: Model, *, max_message_bytes: int = 16 * MIB) -> None:
        self.inner = inner
        self.model = str(getattr(inner, "model", None) or type(inner).__name__)
        self._max_item_size = max_message_bytes

    async def close(self) -> None:
        await self.inner.close()

    async def _cleanup_on_run_end(self, owner: object) -> None:
        await self.inner._cleanup_on_run_end(owner)

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        return self.inner.get_retry_advice(request)

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
        await self._permit(system_instructions, input, tools)
        native = await self._native(input)
        args = (system_instructions, native, model_settings, tools, output_schema, handoffs, tracing)
        kwargs = {
            "previous_response_id": previous_response_id,
            "conversation_id": conversation_id,
            "prompt": prompt,
        }
        tap = self._tap(input, handoffs)
        async with tap:
            async with aclosing(self._events(args, kwargs, tap)) as events:
                async for _ in events:
                    pass
            return model_response(tap.reply)

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
        await self._permit(system_instructions, input, tools)
        native = await self._native(input)
        args = (system_instructions, native, model_settings, tools, output_schema, handoffs, tracing)
        kwargs = {
            "previous_response_id": previous_response_id,
            "conversation_id": conversation_id,
            "prompt": prompt,
        }
        tap = self._tap(input, handoffs)
        async with tap:
            async with aclosing(self._events(args, kwargs, tap)) as events:
                async for event in events:
                    yield event
            for event in completed_events(tap.reply, self.model):
                yield event

    async def _permit(
        self, instructions: str | None, input: str | list[TResponseInputItem], tools: list[Tool]
    ) -> None:
        if (scope := current_scope.get()) is not None:
            await scope.permit(self.model, instructions, as_items(input), tools)

    async def _native(self, input: str | list[TResponseInputItem]) -> Any:
        scope = current_scope.get()
        if scope is None or isinstance(input, str):
            return input

        def prepared() -> list[Item]:
            return [_without_our_id(item) for item in scope.native(as_items(input), self._origin)]

        return prepared() if is_light(input) else await to_thread.run_sync(prepared, abandon_on_cancel=True)

    @property
    def _origin(self) -> str:
        return type(self.inner).__name__

    def _tap(self, input: str | list[TResponseInputItem], handoffs: list[Handoff[Any, Any]]) -> "_Tap":
        scope = current_scope.get()
        observer: ModelCallObserver = (
            scope.model_call(self.model, self._origin, frozenset(h.tool_name for h in handoffs))
            if scope is not None
            else NullObserver(call_ids(as_items(input)))
        )
        return _Tap(observer, self._max_item_size)

    async def _events(
        self, args: tuple[Any, ...], kwargs: JsonObject, tap: "_Tap"
    ) -> AsyncGenerator[TResponseStreamEvent, None]:
        """The model's own events but those that carry whole items; the tap has the reply when they end."""
        began = False
        try:
            async with _closing(self.inner.stream_response(*args, **kwargs)) as stream:
                async for event in stream:
                    began = True
                    tap.feed(event)
                    if event.type not in _ITEM_EVENTS:
                        yield event
        except NotImplementedError:
            if began:
                raise
            tap.feed_response(await self.inner.get_response(*args, **kwargs))
        except (JSONDecodeError, ValidationError) as error:
            raise protocol_failure("the model's client could not read it") from error
        await tap.complete()


class _Tap:
    """Reports one foreign model call; on a way out without a reply it has failed."""

    def __init__(self, observer: ModelCallObserver, max_item_size: int) -> None:
        self._observer = observer
        self._decoder = ResponsesDecoder(observer, max_item_size=max_item_size)
        self._reply: Reply | None = None
        self._counts: TokenCounts | None = None

    @property
    def reply(self) -> Reply:
        if self._reply is None:
            raise protocol_failure("it ended without a final event")
        return self._reply

    def feed(self, event: TResponseStreamEvent) -> None:
        self._decoder.feed(b"", _as_frame(event))

    def feed_response(self, response: ModelResponse) -> None:
        """A whole response; its usage is the SDK's, which counts requests too."""
        usage = response.usage
        body = {
            "id": response.response_id,
            "output": [_as_dict(item) for item in response.output],
            "usage": {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens},
        }
        self._decoder.feed_whole(body)

    async def complete(self) -> None:
        reply = self._decoder.finish()
        self._decoder.accept()
        self._reply = reply
        await self._observer.completed(reply.output, reply.counts)

    async def __aenter__(self) -> "_Tap":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: Any) -> None:
        if self._reply is None:
            if isinstance(error, Exception):
                self._observer.request_failed(turn_error(error).code)
            counts = error.counts if isinstance(error, UpstreamFailure) else self._decoder.counts
            self._observer.failed(counts)


@asynccontextmanager
async def _closing(stream: AsyncIterator[Any]) -> AsyncGenerator[AsyncIterator[Any], None]:
    """Close a stream on every way out, if it is one that can be closed."""
    try:
        yield stream
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()


def tapped(model: Model) -> Model:
    """`model`, reporting to the observer; one of ours comes back as it is."""
    return model if isinstance(model, UpstreamModel | TappedModel) else TappedModel(model)


def _without_our_id(item: Item) -> Item:
    """A provider refuses an id that it did not give."""
    if str(item.get("id", "")).startswith(OUR_IDS):
        return {k: v for k, v in item.items() if k != "id"}
    return item


def _as_frame(event: Any) -> JsonObject:
    """The event as its JSON object; deltas, which are many, without a detour through pydantic."""
    if event.type in _DELTAS:
        return {
            "type": event.type,
            "item_id": getattr(event, "item_id", None),
            "output_index": getattr(event, "output_index", None),
            "delta": getattr(event, "delta", None),
        }
    return _as_dict(event)


def _as_dict(value: Any) -> JsonObject:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_unset=True, warnings=False)
    return dict(value) if isinstance(value, dict) else dict(vars(value))
