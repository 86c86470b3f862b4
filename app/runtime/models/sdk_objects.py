"""The SDK's objects for what came: built, never validated, since validation refuses what servers leave out."""

import time
from collections.abc import Iterable
from typing import Any, Final, TypeVar, get_args

from agents import ModelResponse, Usage
from agents.items import TResponseOutputItem
from openai import BaseModel
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseOutputItem,
    ResponseOutputItemDoneEvent,
    ResponseUsage,
)
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails

from app.domain.json_types import Item
from app.domain.usage import TokenCounts
from app.runtime.fences import fenced
from app.runtime.models.counts import usage_object
from app.runtime.models.json_frames import is_object
from app.runtime.models.reply import Reply

M = TypeVar("M", bound=BaseModel)


def _item_classes() -> dict[str, type[BaseModel]]:
    variants = get_args(get_args(ResponseOutputItem)[0])
    return {get_args(v.model_fields["type"].annotation)[0]: v for v in variants}


ITEM_CLASSES: Final = _item_classes()


def sdk_item(item: Item) -> TResponseOutputItem:
    """The class of its type; an unknown type becomes a bare object, which the SDK passes over."""
    built: Any = ITEM_CLASSES.get(item["type"], BaseModel).construct(**item)
    return built  # type: ignore[no-any-return]


def unfenced(output: list[Item]) -> list[Item]:
    """The same items, with structured output out of the Markdown fence in which some models put it."""
    return [_unfenced_item(item) if item["type"] == "message" else item for item in output]


def _unfenced_item(message: Item) -> Item:
    content = message["content"]
    inside = fenced(content[0].get("text") or "") if len(content) == 1 else None
    if inside is None or not is_object(inside):
        return message
    return {**message, "content": [{**content[0], "text": inside}]}


def completed_events(
    reply: Reply, model: str
) -> Iterable[ResponseOutputItemDoneEvent | ResponseCompletedEvent]:
    """What the SDK's run loop needs to see of a reply."""
    output = [sdk_item(item) for item in reply.output]
    for index, item in enumerate(output):
        yield _holding(
            ResponseOutputItemDoneEvent,
            type="response.output_item.done",
            item=item,
            output_index=index,
            sequence_number=index,
        )
    yield _holding(
        ResponseCompletedEvent,
        type="response.completed",
        response=sdk_response(reply, model, output),
        sequence_number=len(output),
    )


def _holding(kind: type[M], **values: Any) -> M:
    """An object of these values, which are objects themselves where they must be: the package's own `construct`
    would look through each of them once more, at several times the cost."""
    return super(BaseModel, kind).model_construct(**values)


def sdk_response(reply: Reply, model: str, output: list[TResponseOutputItem]) -> Response:
    response = _holding(
        Response,
        id=reply.response_id or "",
        object="response",
        created_at=time.time(),
        status="completed",
        model=reply.model or model,
        output=output,
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
        usage=ResponseUsage.construct(**usage_object(reply.counts)),
    )
    response._request_id = reply.request_id
    return response


def model_response(reply: Reply) -> ModelResponse:
    return ModelResponse(
        output=[sdk_item(item) for item in reply.output],
        usage=sdk_usage(reply.counts),
        response_id=reply.response_id,
        request_id=reply.request_id,
    )


def sdk_usage(counts: TokenCounts | None) -> Usage:
    counts = counts or TokenCounts()
    return Usage(
        requests=1,
        input_tokens=counts.input_tokens,
        input_tokens_details=InputTokensDetails(
            cached_tokens=counts.cached_input_tokens, cache_write_tokens=counts.cache_write_tokens
        ),
        output_tokens=counts.output_tokens,
        output_tokens_details=OutputTokensDetails(reasoning_tokens=counts.reasoning_tokens),
        total_tokens=counts.total_tokens,
    )
