"""Which model answers: from a model's name to an SDK model over the upstream that serves it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import httpx2
from agents import FunctionTool, Model, ModelProvider, ModelSettings
from agents.models import get_default_model

from app.runtime.failures import UpstreamFailure, shown
from app.runtime.models.chat_messages import ReplayReasoning
from app.runtime.models.model import UpstreamModel
from app.runtime.models.reply import Reply
from app.runtime.models.requests import ModelRequest, outgoing
from app.runtime.models.sdk_objects import completed_events
from app.runtime.models.transport import (
    Access,
    FixedEndpoint,
    Upstream,
    UpstreamLimits,
    Wire,
    bearer_access,
    is_loopback,
)

OPENAI_URL: Final = "https://api.openai.com/v1"
OPENAI_HOST: Final = "api.openai.com"
EMBEDDED_MAX_TOKENS: Final = 1024


@dataclass(frozen=True, slots=True)
class EmbeddedModel:
    """A model that this service serves itself. `ensure` starts it if need be and returns (base URL, key)."""

    name: str
    ensure: Callable[[], Awaitable[tuple[str, str]]]


class _EmbeddedEndpoint:
    def __init__(self, model: EmbeddedModel) -> None:
        self._model = model

    async def access(self) -> Access:
        try:
            base_url, api_key = await self._model.ensure()
        except Exception as error:  # whatever hinders its start is what hinders the turn
            said = shown(str(error)) or type(error).__name__
            raise UpstreamFailure("upstream_unreachable", f"The embedded model cannot run: {said}") from error
        return bearer_access(base_url, api_key)

    async def renew(self) -> bool:
        return False


class Providers(ModelProvider):
    """The models of the environment's upstream and, if there is one, the embedded model.

    Without a URL, a key and a named model only the embedded model answers, if it is given. `wire` `auto` is
    Responses on api.openai.com and Chat Completions elsewhere. Must be closed: `aclose`.
    """

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        wire: Literal["auto", "responses", "chat_completions"] = "auto",
        default_model: str | None = None,
        embedded: EmbeddedModel | None = None,
        limits: UpstreamLimits | None = None,
        replay_reasoning: ReplayReasoning = "turn",
    ) -> None:
        limits = limits or UpstreamLimits()
        self._embedded = embedded
        self._embedded_upstream = _embedded_upstream(embedded, limits) if embedded else None
        self._upstream: Upstream | None = None
        if embedded is None or base_url or api_key or default_model not in (None, embedded.name):
            self._upstream = _environment_upstream(base_url, api_key, wire, limits, replay_reasoning)
        named = default_model or (embedded.name if embedded and self._upstream is None else None)
        self._is_default_named = named is not None
        self.default_model: str = named or get_default_model()

    @property
    def upstreams(self) -> list[Upstream]:
        return [u for u in (self._upstream, self._embedded_upstream) if u is not None]

    def serves(self, name: str) -> bool:
        """True if an upstream serves a model of that name; the environment's is taken to serve any."""
        return self._upstream_of(name) is not None

    def wire_of(self, name: str | None) -> Wire:
        """The wire on which a model is asked; the default model's for None or a model of a user's own."""
        upstream = self._upstream_of(name or self.default_model) or self._upstream_of(self.default_model)
        return upstream.wire if upstream else "chat_completions"

    def get_model(self, model_name: str | None) -> Model:
        """Raises UpstreamFailure (`upstream_rejected`) for a name that nobody serves."""
        name = model_name or self.default_model
        upstream = self._upstream_of(name)
        if upstream is None:
            raise UpstreamFailure("upstream_rejected", f"No upstream serves the model {name!r}")
        return UpstreamModel(upstream, name, is_named=bool(model_name) or self._is_default_named)

    def _upstream_of(self, name: str) -> Upstream | None:
        if self._embedded is not None and name == self._embedded.name:
            return self._embedded_upstream
        return self._upstream

    async def aclose(self) -> None:
        for upstream in self.upstreams:
            await upstream.aclose()

    def warm_up(self) -> None:
        """Pay for what is made at its first use (schemas of tools and items), before the first turn does.

        Half a second of work: call it from a thread. Sends nothing.
        """
        for upstream in self.upstreams:
            outgoing(_warm_request(), upstream)
        reply = Reply([dict(item) for item in _WARM_ITEMS], None)
        for event in completed_events(reply, "warm"):
            event.to_dict()


def _environment_upstream(
    base_url: str | None,
    api_key: str | None,
    wire: Literal["auto", "responses", "chat_completions"],
    limits: UpstreamLimits,
    replay_reasoning: ReplayReasoning,
) -> Upstream:
    url = base_url or OPENAI_URL
    is_openai = _host(url) == OPENAI_HOST
    chosen: Wire = wire if wire != "auto" else "responses" if is_openai else "chat_completions"
    return Upstream(
        "openai" if is_openai else _host(url) or "upstream",
        chosen,
        FixedEndpoint(url, api_key),
        limits=limits,
        is_openai=is_openai,
        trust_env=not is_loopback(url),
        tls=httpx2.create_ssl_context() if url.lower().startswith("https:") else None,
        replay_reasoning=replay_reasoning,
    )


def _embedded_upstream(embedded: EmbeddedModel, limits: UpstreamLimits) -> Upstream:
    return Upstream(
        "embedded",
        "chat_completions",
        _EmbeddedEndpoint(embedded),
        limits=limits,
        trust_env=False,
        replay_reasoning="never",
        # Progress while it reads a prompt makes it notice that nobody listens any more.
        body_defaults={"max_tokens": EMBEDDED_MAX_TOKENS, "return_progress": True},
    )


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


async def _no_tool(context: Any, arguments: str) -> str:
    return arguments


_WARM_ITEMS: Final = (
    {"type": "reasoning", "id": "rs_w", "summary": [{"type": "summary_text", "text": ""}]},
    {
        "type": "message",
        "id": "msg_w",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "warm", "annotations": []}],
    },
    {
        "type": "function_call",
        "id": "fc_w",
        "call_id": "call_w",
        "name": "warm",
        "arguments": "{}",
        "status": "completed",
    },
)


def _warm_request() -> ModelRequest:
    tool = FunctionTool("warm", "", {"type": "object", "properties": {}}, _no_tool, strict_json_schema=False)
    return ModelRequest(
        model="warm",
        is_model_named=True,
        instructions="warm",
        items=[{"role": "user", "content": "warm"}, *(dict(item) for item in _WARM_ITEMS)],
        settings=ModelSettings(temperature=0),
        tools=[tool],
        output_schema=None,
        handoffs=[],
        previous_response_id=None,
        conversation_id=None,
        prompt=None,
    )
