"""Which model answers: from a model's name to an SDK model over the upstream that serves it."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from agents import FunctionTool, Model, ModelProvider, ModelSettings
from agents.models import get_default_model

from app.domain.json_types import JsonObject
from app.domain.usage import Price
from app.runtime.credentials.databricks import NAMES as DATABRICKS_NAMES
from app.runtime.credentials.environment import Reached
from app.runtime.failures import UpstreamFailure, shown
from app.runtime.models.chat_messages import ReplayReasoning
from app.runtime.models.model import UpstreamModel
from app.runtime.models.reply import Reply
from app.runtime.models.requests import ModelRequest, outgoing
from app.runtime.models.sdk_objects import completed_events
from app.runtime.models.transport import (
    Access,
    Upstream,
    UpstreamLimits,
    Wire,
    bearer_access,
    is_loopback,
)

OPENAI_HOST: Final = "api.openai.com"
EMBEDDED_MAX_TOKENS: Final = 1024
STATES_KEPT_S: Final = 5.0
Api = Literal["auto", "responses", "chat_completions"]


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

    async def renew(self, refused: Access) -> bool:
        return False

    async def aclose(self) -> None:
        """Who made it stops it."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model of the operator's list. `upstream` None: the environment's; `sent_as`: how that calls it."""

    upstream: Upstream | None
    sent_as: str | None = None
    defaults: ModelSettings | None = None
    context_window: int | None = None
    price: Price | None = None


class Providers(ModelProvider):
    """Which upstream serves which name: the listed models first, then `databricks-` names by the ambient
    workspace, then the embedded model, then the environment's upstream, which is taken to serve any name.

    The default model is the one that was named, else the first listed one if nothing but the list serves, else
    the embedded one if that is alone, else the SDK's. Must be closed: `aclose`.
    """

    def __init__(
        self,
        environment: Upstream | None = None,
        *,
        ambient: Upstream | None = None,
        listed: Mapping[str, ServedModel] | None = None,
        default_model: str | None = None,
        embedded: EmbeddedModel | None = None,
        limits: UpstreamLimits | None = None,
    ) -> None:
        self._environment = environment
        self._ambient = ambient
        self._listed = dict(listed or {})
        self._embedded = embedded
        self._embedded_upstream = _embedded_upstream(embedded, limits or UpstreamLimits()) if embedded else None
        named = default_model or self._only_default()
        self._is_default_named = named is not None
        self.default_model: str = named or get_default_model()
        self._states: asyncio.Task[list[JsonObject]] | None = None
        self._states_until = 0.0

    def _only_default(self) -> str | None:
        if self._environment is not None:
            return None
        if self._listed:
            return next(iter(self._listed))
        return self._embedded.name if self._embedded else None

    @property
    def upstreams(self) -> list[Upstream]:
        """Each one once."""
        listed = [model.upstream for model in self._listed.values()]
        found = [self._environment, self._ambient, self._embedded_upstream, *listed]
        return list(dict.fromkeys(u for u in found if u is not None))

    def serves(self, name: str) -> bool:
        """True if an upstream serves a model of that name."""
        return self._upstream_of(name) is not None

    def context_window(self, name: str) -> int | None:
        """In tokens, None if the list does not say."""
        listed = self._listed.get(name)
        return listed.context_window if listed else None

    def price_of(self, name: str) -> Price | None:
        """None if the list does not say."""
        listed = self._listed.get(name)
        return listed.price if listed else None

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
        is_named = bool(model_name) or self._is_default_named
        listed = self._listed.get(name)
        if listed is None:
            return UpstreamModel(upstream, name, is_named=is_named)
        return UpstreamModel(
            upstream, name, is_named=is_named, sent_as=listed.sent_as, defaults=listed.defaults
        )

    def _upstream_of(self, name: str) -> Upstream | None:
        if (listed := self._listed.get(name)) is not None:
            return listed.upstream or self._environment
        if self._ambient is not None and name.startswith(DATABRICKS_NAMES):
            return self._ambient
        if self._embedded is not None and name == self._embedded.name:
            return self._embedded_upstream
        return self._environment

    async def states(self) -> list[JsonObject]:
        """How each upstream is, asked of all at once; the answer is kept for a while, whoever asks."""
        clock = asyncio.get_running_loop().time
        if self._states is None or (self._states.done() and clock() >= self._states_until):
            self._states_until = clock() + STATES_KEPT_S
            self._states = asyncio.create_task(self._ask_states(), name="upstream states")
        return await asyncio.shield(self._states)

    async def _ask_states(self) -> list[JsonObject]:
        """The embedded model is not started for being asked."""
        asked = [u for u in self.upstreams if u is not self._embedded_upstream]
        states = list(await asyncio.gather(*(upstream.state() for upstream in asked)))
        if self._embedded_upstream is not None:
            told = {"name": self._embedded_upstream.name, "api": self._embedded_upstream.wire}
            states.append(told | {"status": "embedded"})
        return states

    async def aclose(self) -> None:
        if self._states is not None:
            self._states.cancel()
            await asyncio.wait([self._states])
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


def upstream_at(
    reached: Reached,
    api: Api = "auto",
    limits: UpstreamLimits | None = None,
    *,
    tls: ssl.SSLContext | None = None,
    replay_reasoning: ReplayReasoning = "turn",
) -> Upstream:
    """`api` `auto` is Responses on api.openai.com and Chat Completions elsewhere."""
    place = _place(reached.url)
    is_openai = place == OPENAI_HOST
    chosen: Wire = api if api != "auto" else "responses" if is_openai else "chat_completions"
    return Upstream(
        "openai" if is_openai else place or "upstream",
        chosen,
        reached.endpoint,
        limits=limits,
        is_openai=is_openai,
        trust_env=not is_loopback(reached.url),
        tls=tls,
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
        # It never chooses one; offered some, its server takes part of its talk for a broken call and fails.
        takes_tools=False,
    )


def _place(url: str) -> str:
    """Host and port, the port only if it is said: two servers on one host are two upstreams."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        return ""
    return f"{parts.hostname or ''}{port}"


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
