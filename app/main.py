"""The composition root: the service as an ASGI app, put together from the settings."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from starlette.middleware import Middleware

from app.api.auth import Authentication
from app.api.body import BodyReader
from app.api.error_handlers import ErrorBoundary, add_error_handlers
from app.api.heads import HeadAsGet
from app.api.hosts import KnownHosts
from app.api.openapi import TITLE, openapi_document
from app.api.origins import Origins
from app.api.pages import pages
from app.api.request_ids import RequestIds
from app.api.routes import ROUTERS
from app.api.state import Api
from app.api.streaming import StreamLimits
from app.keys import load_keys
from app.services import Services, open_services
from app.settings import OVERRIDES, Settings

Opener = Callable[[Settings], AbstractAsyncContextManager[Services]]


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
    add_error_handlers(app, ROUTERS)
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
        bodies=BodyReader(settings.max_body_bytes, settings.max_nesting),
        limits=StreamLimits(settings.heartbeat_s, settings.listener_stall_s),
        forbidden_overrides=frozenset(OVERRIDES) - settings.allowed_overrides,
        may_auto_approve=settings.allow_auto_approve,
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
