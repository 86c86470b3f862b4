"""Is it alive, is it ready, what does it count."""

from typing import Annotated

from anyio import to_thread
from fastapi import Query, Response

from app.api.answers import JsonAnswer
from app.api.dependencies import GivenApi
from app.api.documented import HEALTH, METRICS, READINESS, problems
from app.api.routes.router import api_router
from app.errors import ShuttingDown, StoreUnavailable
from app.observability.metrics import CONTENT_TYPE

router = api_router("", "service")


@router.get("/healthz", responses={**HEALTH})
async def healthz() -> Response:
    """The process is alive."""
    return JsonAnswer({"status": "ok"})


@router.get("/readyz", responses={**READINESS, **problems(422, 503)})
async def readyz(
    api: GivenApi, deep: Annotated[bool, Query(description="Ask the upstreams too, as information.")] = False
) -> Response:
    """The store can be used and the service is not shutting down."""
    if api.turns.draining:
        raise ShuttingDown("The service is shutting down.")
    if not await api.turns.ready():
        raise StoreUnavailable("The store cannot be used.")
    return JsonAnswer({"status": "ready", **({"upstreams": await api.upstreams()} if deep else {})})


@router.get("/metrics", responses={**METRICS})
async def metrics(api: GivenApi) -> Response:
    """For Prometheus."""
    return Response(await to_thread.run_sync(api.metrics.render), media_type=CONTENT_TYPE)
