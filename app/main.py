"""The composition root: the only place that builds things and reads the settings."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from starlette.middleware import Middleware

from app.api.auth import ApiKeys, Authentication, pairs
from app.api.body import BodyReader
from app.api.error_handlers import ErrorBoundary, add_error_handlers
from app.api.heads import HeadAsGet
from app.api.hosts import KnownHosts
from app.api.openapi import TITLE, openapi_document
from app.api.origins import Origins
from app.api.pages import pages
from app.api.request_ids import RequestIds
from app.api.routes import ROUTERS
from app.api.state import Api, no_upstreams
from app.api.streaming import StreamLimits
from app.domain.json_types import JsonObject
from app.observability.metrics import Metrics
from app.settings import OVERRIDES, Settings, SettingsError
from app.turns.service import TurnService


class StartError(Exception):
    """The service cannot start here and now; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Services:
    """What the HTTP side stands on. `drain` ends what runs within the grace of the settings."""

    turns: TurnService
    metrics: Metrics
    drain: Callable[[], Awaitable[None]]
    upstreams: Callable[[], Awaitable[list[JsonObject]]] = no_upstreams


Opener = Callable[[Settings], AbstractAsyncContextManager[Services]]


@asynccontextmanager
async def open_services(settings: Settings) -> AsyncIterator[Services]:
    """Build everything that turns need, and close it again in reverse. Raises StartError."""
    raise StartError("There is nothing to run turns with yet.")
    yield


def create_app(settings: Settings, opener: Opener = open_services) -> FastAPI:
    """The service as an ASGI app; its lifespan builds what it needs. Raises SettingsError."""
    app = FastAPI(
        title=TITLE,
        version=version("turnwire"),
        openapi_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        lifespan=_lifespan(settings, opener),
        middleware=_middleware(settings),
    )
    add_error_handlers(app)
    for router in ROUTERS:
        app.include_router(router)
    app.include_router(pages(lambda: openapi_document(ROUTERS, app.version)))
    return app


def _lifespan(
    settings: Settings, opener: Opener
) -> Callable[[FastAPI], AbstractAsyncContextManager[dict[str, Any]]]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        async with opener(settings) as services:
            yield {"api": _api(settings, services), "services": services}

    return lifespan


def _api(settings: Settings, services: Services) -> Api:
    return Api(
        turns=services.turns,
        metrics=services.metrics,
        bodies=BodyReader(settings.max_body_bytes),
        limits=StreamLimits(settings.heartbeat_s, settings.listener_stall_s),
        forbidden_overrides=frozenset(OVERRIDES) - settings.allowed_overrides,
        upstreams=services.upstreams,
    )


def _middleware(settings: Settings) -> list[Middleware]:
    """From the outside inwards. The second boundary stands within `Origins`, so that a page that may use the
    service can also read why it was refused."""
    hosts = [Middleware(KnownHosts, allowed=settings.allowed_hosts)] if settings.on_loopback else []
    return [
        Middleware(RequestIds),
        Middleware(ErrorBoundary),
        *hosts,
        Middleware(Origins, allowed=settings.cors_origins),
        Middleware(ErrorBoundary),
        Middleware(Authentication, keys=load_keys(settings)),
        Middleware(HeadAsGet),
    ]


def load_keys(settings: Settings) -> ApiKeys | None:
    """The API keys of the settings and of their file, None if there are none. Raises SettingsError."""
    texts = key_texts(settings)
    for variable, text in texts.items():
        try:
            ApiKeys.parse(text)
        except ValueError as error:
            raise SettingsError(f"{variable}: {error}") from None
    return ApiKeys.parse("\n".join(texts.values())) if texts else None


def key_texts(settings: Settings) -> dict[str, str]:
    """What the variables of the API keys say, by their names. Secret. Raises SettingsError."""
    texts = {}
    if settings.api_keys is not None:
        texts["TURNWIRE_API_KEYS"] = settings.api_keys.get_secret_value()
    if settings.api_keys_file is not None:
        try:
            texts["TURNWIRE_API_KEYS_FILE"] = settings.api_keys_file.read_text("utf-8")
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8"
            raise SettingsError(f"TURNWIRE_API_KEYS_FILE: cannot be read: {reason}") from None
    return texts


def secrets(settings: Settings) -> list[str]:
    """What no log line may show. Raises SettingsError."""
    given = (settings.openai_api_key, settings.database_url)
    keys = [key for text in key_texts(settings).values() for _, key in pairs(text)]
    return [*keys, *(secret.get_secret_value() for secret in given if secret is not None)]
