"""Request bodies of both wires: what the SDK's own models would send, only with what is set."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from agents import Handoff, ModelSettings, Tool
from agents.agent_output import AgentOutputSchemaBase
from agents.models.chatcmpl_converter import Converter as ChatConverter
from agents.models.openai_responses import Converter as ResponsesConverter
from openai import Omit
from openai.types.responses.response_prompt_param import ResponsePromptParam

from app.domain.history import CALL_TYPES, repaired
from app.domain.json_types import Item, JsonObject
from app.runtime.models.chat_messages import messages_of
from app.runtime.models.json_frames import dumps
from app.runtime.models.outgoing import as_items, for_responses
from app.runtime.models.transport import Outgoing, Upstream

MAX_NAME: Final = 64
_PLAIN_NAME: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_NAME}}}")


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


def input_items(input: str | list[Any], *, is_whole: bool) -> list[Item]:
    """The SDK's input as items that a strict provider takes.

    Unless `is_whole` the provider keeps the rest, and outputs come without their calls.
    """
    items = as_items(input)
    return repaired(items) if is_whole else items


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
    messages = messages_of(
        _with_plain_names(request),
        upstream=upstream.name,
        replay_reasoning=upstream.replay_reasoning,
        developer_role="developer" if upstream.is_openai else "system",
    )
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


def _with_plain_names(request: ModelRequest) -> Sequence[Item]:
    """The items, but calls of tools that nobody has, whose names models make up, have names as providers take
    them: one that is none would have each request of the conversation refused."""
    if all(_is_plain(item) for item in request.items):
        return request.items
    known = {tool.name for tool in request.tools} | {handoff.tool_name for handoff in request.handoffs}
    return [
        i if _is_plain(i) or i["name"] in known else {**i, "name": _plain(i["name"])} for i in request.items
    ]


def _is_plain(item: Item) -> bool:
    return item.get("type") not in CALL_TYPES or _PLAIN_NAME.fullmatch(item["name"]) is not None


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name)[:MAX_NAME]


def _chat_tools(request: ModelRequest) -> list[Any]:
    tools: list[Any] = [ChatConverter.tool_to_openai(tool) for tool in request.tools]
    return tools + [ChatConverter.convert_handoff_tool(handoff) for handoff in request.handoffs]


def responses_body(request: ModelRequest, upstream: Upstream) -> JsonObject:
    settings = request.settings
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
        "input": for_responses(_with_plain_names(request), upstream.name),
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
