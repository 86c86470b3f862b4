"""Request bodies of both wires: what the SDK's own models would send, only with what is set."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import is_
from typing import Any, Final

from agents import Handoff, ModelSettings, Tool
from agents.agent_output import AgentOutputSchemaBase
from agents.models.chatcmpl_converter import Converter as ChatConverter
from agents.models.openai_responses import Converter as ResponsesConverter
from openai import Omit
from openai.types.responses.response_prompt_param import ResponsePromptParam

from app.domain.history import CALL_TYPES, repaired
from app.domain.json_types import Item, JsonObject
from app.runtime.models.chat_messages import ReplayReasoning, messages_of
from app.runtime.models.json_frames import dumps
from app.runtime.models.outgoing import as_items, for_responses
from app.runtime.models.past import Past, ReadyPast, parted
from app.runtime.models.transport import Outgoing, Upstream

MAX_NAME: Final = 64
_PLAIN_NAME: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_NAME}}}")


Native = Callable[[Sequence[Item]], Sequence[Item]]
"""Makes items such that an upstream may get them."""
Write = Callable[[Sequence[Item]], list[Any]]
"""Makes of items what a wire takes."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """The arguments of one call of an SDK model, its input as valid items."""

    model: str
    is_model_named: bool
    instructions: str | None
    items: Sequence[Item]
    settings: ModelSettings
    tools: list[Tool]
    output_schema: AgentOutputSchemaBase | None
    handoffs: list[Handoff[Any, Any]]
    previous_response_id: str | None
    conversation_id: str | None
    prompt: ResponsePromptParam | None
    past: ReadyPast | None = None
    """What `items` begin with, if it can be written without the rest."""


def input_items(input: str | Sequence[Any], *, is_whole: bool) -> list[Item]:
    """The SDK's input as items that a strict provider takes.

    Unless `is_whole` the provider keeps the rest, and outputs come without their calls.
    """
    items = as_items(input)
    return repaired(items) if is_whole else items


def native_input(
    input: str | Sequence[Any], native: Native, upstream: Upstream, *, is_whole: bool
) -> tuple[list[Item], ReadyPast | None]:
    """The same as `upstream` may get it. A past is made ready once, if it can be without what follows: that
    must begin with what a user says, which ends whatever was open before it."""
    past, rest = parted(input)
    items = input_items(list(native(as_items(rest))), is_whole=is_whole)
    if past is None:
        return items, None
    if not is_whole or not items or items[0].get("role") != "user":
        return input_items(list(native(as_items(input))), is_whole=is_whole), None
    ready = past.ready(upstream, partial(_ready, native=native))
    return [*ready.items, *items], ready if ready.stands_alone else None


def _ready(past: Past, native: Native) -> ReadyPast:
    """Names that no provider takes are written by what tools a request has: what holds one waits for it."""
    items = list(native(past.items))
    is_same = len(items) == len(past.items) and all(map(is_, items, past.items))
    valid = items if is_same else repaired(items)
    return ReadyPast(valid, stands_alone=all(map(_is_plain, valid)))


def outgoing(request: ModelRequest, upstream: Upstream) -> Outgoing:
    """The HTTP request for `upstream`, by its wire. Raises UserError for what the wire cannot say."""
    chat = upstream.wire == "chat_completions"
    body = chat_body(request, upstream) if chat else responses_body(request, upstream)
    settings = request.settings
    body = (
        upstream.body_defaults
        | _only_set(body)
        | _only_set(settings.extra_args)
        | _only_set(settings.extra_body)
    )
    headers = {k: v for k, v in (settings.extra_headers or {}).items() if isinstance(v, str)}
    return Outgoing(
        "/chat/completions" if chat else "/responses", dumps(body), headers, dict(settings.extra_query or {})
    )


def chat_body(request: ModelRequest, upstream: Upstream) -> JsonObject:
    settings = request.settings
    messages = _written(request, partial(_messages, upstream), partial(_messages_before, upstream))
    if request.instructions:
        messages.insert(0, {"role": "system", "content": request.instructions})
    tools = _chat_tools(request) if upstream.takes_tools else []
    asks_usage = settings.include_usage is not False and not upstream.refuses_stream_options
    return {
        "model": request.model,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True} if asks_usage else None,
        "tools": tools or None,
        "tool_choice": ChatConverter.convert_tool_choice(settings.tool_choice) if tools else None,
        "parallel_tool_calls": settings.parallel_tool_calls if tools else None,
        "response_format": ChatConverter.convert_response_format(request.output_schema),
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "frequency_penalty": settings.frequency_penalty,
        "presence_penalty": settings.presence_penalty,
        # OpenAI's newer models refuse the old name, other servers do not know the new one.
        "max_completion_tokens" if upstream.is_openai else "max_tokens": settings.max_tokens,
        "reasoning_effort": settings.reasoning.effort if settings.reasoning else None,
        "verbosity": settings.verbosity,
        "top_logprobs": settings.top_logprobs,
        "logprobs": True if settings.top_logprobs is not None else None,
        "store": settings.store,
        "metadata": settings.metadata,
        "prompt_cache_retention": settings.prompt_cache_retention,
        "prompt_cache_options": settings.prompt_cache_options,
    }


def _messages(upstream: Upstream, items: Sequence[Item], replay: ReplayReasoning | None = None) -> list[Any]:
    return messages_of(
        items,
        upstream=upstream.name,
        replay_reasoning=replay or upstream.replay_reasoning,
        developer_role="developer" if upstream.is_openai else "system",
    )


def _messages_before(upstream: Upstream, items: Sequence[Item]) -> list[Any]:
    """Messages before the turn: its own user message follows, from which on reasoning may be wanted."""
    return _messages(upstream, items, "always" if upstream.replay_reasoning == "always" else "never")


def _written(request: ModelRequest, write: Write, write_past: Write) -> list[Any]:
    """The items as the wire takes them, in a new list; a past is written once in the turn."""
    if request.past is None:
        return write(_with_plain_names(request, request.items))
    rest = request.items[len(request.past.items) :]
    return [*request.past.written(write_past), *write(_with_plain_names(request, rest))]


def _with_plain_names(request: ModelRequest, items: Sequence[Item]) -> Sequence[Item]:
    """The items, but calls of tools that nobody has, whose names models make up, have names as providers take
    them: one that is none would have each request of the conversation refused."""
    if all(_is_plain(item) for item in items):
        return items
    known = {tool.name for tool in request.tools} | {handoff.tool_name for handoff in request.handoffs}
    return [i if _is_plain(i) or i["name"] in known else {**i, "name": _plain(i["name"])} for i in items]


def _is_plain(item: Item) -> bool:
    return item.get("type") not in CALL_TYPES or _PLAIN_NAME.fullmatch(item["name"]) is not None


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name)[:MAX_NAME]


def _chat_tools(request: ModelRequest) -> list[Any]:
    tools: list[Any] = [ChatConverter.tool_to_openai(tool) for tool in request.tools]
    return tools + [ChatConverter.convert_handoff_tool(handoff) for handoff in request.handoffs]


def responses_body(request: ModelRequest, upstream: Upstream) -> JsonObject:
    settings = request.settings
    write = partial(for_responses, upstream=upstream.name)
    # With a prompt of the provider's, the model is the prompt's unless one was named.
    model = request.model if request.prompt is None or request.is_model_named else None
    tool_model = ResponsesConverter.resolve_computer_tool_model(request_model=model, tools=request.tools)
    tools = ResponsesConverter.convert_tools(
        request.tools,
        request.handoffs,
        allow_opaque_tool_search_surface=request.prompt is not None,
        model=tool_model,
        tool_choice=settings.tool_choice,
    )
    has_tools = bool(tools.tools) or request.prompt is not None
    choice = ResponsesConverter.convert_tool_choice(
        settings.tool_choice, tools=request.tools, handoffs=request.handoffs, model=tool_model
    )
    if not tools.tools and isinstance(choice, dict):
        choice = Omit()
    return {
        "model": model,
        "instructions": request.instructions or None,
        "input": _written(request, write, write),
        "stream": True,
        "tools": tools.tools or None,
        "tool_choice": choice if has_tools else None,
        "parallel_tool_calls": settings.parallel_tool_calls if has_tools else None,
        "text": _text_format(request),
        "include": _includes(settings, tools.includes),
        "previous_response_id": request.previous_response_id,
        "conversation": request.conversation_id,
        "prompt": request.prompt,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "truncation": settings.truncation,
        "max_output_tokens": settings.max_tokens,
        "reasoning": settings.reasoning,
        "top_logprobs": settings.top_logprobs,
        "store": settings.store,
        "metadata": settings.metadata,
        "context_management": settings.context_management,
        "prompt_cache_retention": settings.prompt_cache_retention,
        "prompt_cache_options": settings.prompt_cache_options,
    }


def _text_format(request: ModelRequest) -> JsonObject | None:
    text = ResponsesConverter.get_response_format(request.output_schema)
    result: JsonObject = {} if isinstance(text, Omit) else dict(text)
    if request.settings.verbosity is not None:
        result["verbosity"] = request.settings.verbosity
    return result or None


def _includes(settings: ModelSettings, of_tools: Sequence[str]) -> list[str] | None:
    wanted = {*of_tools, *(settings.response_include or ())}
    if settings.top_logprobs is not None:
        wanted.add("message.output_text.logprobs")
    if settings.store is False and settings.reasoning is not None:
        # A provider that keeps nothing takes reasoning back only with its encrypted content.
        wanted.add("reasoning.encrypted_content")
    return sorted(wanted) or None


def _only_set(body: Any) -> JsonObject:
    """Without what was not set. Nulls within are kept: they mean something to whoever wrote them."""
    return {k: v for k, v in (body or {}).items() if v is not None and not isinstance(v, Omit)}
