"""From what the settings say of models and credentials to `Providers` that are ready for the first turn."""

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import httpx2

from app.runtime.credentials.databricks import NAMES as DATABRICKS_NAMES
from app.runtime.credentials.databricks import DatabricksLogin
from app.runtime.credentials.environment import (
    CredentialsError,
    EnvironmentCredentials,
    Reached,
    ambient,
    by_command,
    by_databricks,
    fixed,
    reached,
)
from app.runtime.model_list import VARIABLE, ListedModel
from app.runtime.models.transport import Upstream, UpstreamLimits
from app.runtime.providers import Api, EmbeddedModel, Providers, ServedModel, upstream_at


@dataclass(frozen=True, slots=True)
class ModelConfiguration:
    """`default_model` is `TURNWIRE_MODEL`. `embedded` is used only where nothing else is configured."""

    credentials: EnvironmentCredentials = field(default_factory=EnvironmentCredentials)
    listed: Mapping[str, ListedModel] = field(default_factory=dict)
    default_model: str | None = None
    api: Api = "auto"
    limits: UpstreamLimits = field(default_factory=UpstreamLimits)
    embedded: EmbeddedModel | None = None


async def open_models(configuration: ModelConfiguration, stack: AsyncExitStack) -> Providers:
    """Log in where that is asked for; `stack` closes all that was opened. Raises CredentialsError."""
    opener = _Opener(configuration, stack)
    providers = await opener.providers()
    stack.push_async_callback(providers.aclose)
    name = configuration.default_model
    if name is not None and not providers.serves(name):
        raise CredentialsError(
            f"TURNWIRE_MODEL={name}: no configured upstream serves it. "
            f"Set OPENAI_API_KEY or OPENAI_BASE_URL, or list it in {VARIABLE}"
        )
    return providers


class _Opener:
    """Builds each upstream once: models of one place with the same credentials share it."""

    def __init__(self, configuration: ModelConfiguration, stack: AsyncExitStack) -> None:
        self._said = configuration
        self._stack = stack
        self._known: dict[tuple[object, ...], Upstream] = {}
        self._tls: ssl.SSLContext | None = None

    async def providers(self) -> Providers:
        said = self._said
        environment = await self._opened(await reached(said.credentials), said.api)
        is_needed = (said.default_model or "").startswith(DATABRICKS_NAMES) and environment is None
        ambient_way = await ambient(said.credentials, is_needed=is_needed)
        listed = {name: await self._served(name, model) for name, model in said.listed.items()}
        for name, model in listed.items():
            if model.upstream is None and environment is None:
                raise CredentialsError(
                    f"{VARIABLE}: {name}: it has no url, and there is no upstream of the environment"
                )
        return Providers(
            environment,
            ambient=await self._opened(ambient_way, said.api),
            listed=listed,
            default_model=said.default_model,
            embedded=self._embedded(environment),
            limits=said.limits,
        )

    def _embedded(self, environment: Upstream | None) -> EmbeddedModel | None:
        """It never stands in for a model that was asked for by name."""
        said, embedded = self._said, self._said.embedded
        alone = environment is None and not said.listed
        is_meant = embedded is not None and said.default_model in (None, embedded.name)
        return embedded if alone and is_meant else None

    async def _opened(self, way: Reached | None, api: Api) -> Upstream | None:
        if way is None:
            return None
        upstream = upstream_at(way, api, self._said.limits, tls=await self._trusted(way.url))
        # Also if the start fails further on.
        self._stack.push_async_callback(upstream.aclose)
        return upstream

    async def _trusted(self, url: str) -> ssl.SSLContext | None:
        """One for all: it is 40 ms of work."""
        if self._tls is None and url.lower().startswith("https:"):
            self._tls = await asyncio.to_thread(httpx2.create_ssl_context)
        return self._tls

    async def _served(self, name: str, model: ListedModel) -> ServedModel:
        return ServedModel(
            await self._upstream(name, model),
            model.model,
            model.defaults.settings() if model.defaults.model_fields_set else None,
            model.context_window,
            model.price.price() if model.price else None,
        )

    async def _upstream(self, name: str, model: ListedModel) -> Upstream | None:
        key = model.api_key.get_secret_value() if model.api_key else None
        place = (model.url, model.api, key, model.auth_command, model.databricks_profile, model.databricks_host)
        if place not in self._known:
            try:
                upstream = await self._opened(await self._way(model, key), model.api)
            except CredentialsError as error:
                raise CredentialsError(f"{VARIABLE}: {name}: {error}") from error
            if upstream is None:
                return None
            self._known[place] = upstream
        return self._known[place]

    async def _way(self, model: ListedModel, key: str | None) -> Reached | None:
        if model.databricks_profile or model.databricks_host:
            return await by_databricks(DatabricksLogin(model.databricks_profile, model.databricks_host))
        if model.url is None:
            return None
        if model.auth_command:
            return by_command(model.url, model.auth_command, self._said.credentials.command_limits)
        return fixed(model.url, key)
