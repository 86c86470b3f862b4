"""Every error answer is made here: RFC 9457 problems, with the contract's `code` and the request's id.

What is raised inside (`TurnwireError`) and what FastAPI and its router raise are rendered alike. Anything else
is a defect of ours: 500 with nothing inside, and the traceback in the log alone.
"""

import logging
import math
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.answers import NO_STORE, dumps
from app.api.request_ids import REQUEST_ID
from app.errors import InvalidRequest, TurnwireError, Unauthenticated

logger = logging.getLogger(__name__)

PROBLEM = "application/problem+json"
MAX_ERRORS = 50
MAX_DETAIL = 1000
"""A detail names what was asked for, which may be long."""
_SHOWN = 128
_ROUTER_CODES = {400: "bad_request", 404: "not_found", 405: "method_not_allowed"}


def render(scope: Scope, error: Exception) -> Response:
    """The answer to an error, whatever it is."""
    match error:
        case TurnwireError():
            return _turnwire_problem(scope, error)
        case RequestValidationError():
            return _turnwire_problem(scope, invalid_request(error))
        case HTTPException():
            return _router_problem(scope, error)
        case _:
            return _problem(scope, 500, "internal", "Internal error", "Something went wrong; the log has it.")


def invalid_request(error: RequestValidationError) -> InvalidRequest:
    """What is wrong and where, never what was sent: an input may hold anything."""
    errors = [_shown(e) for e in error.errors()[:MAX_ERRORS]]
    where = ".".join(str(part) for part in errors[0]["loc"])
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return InvalidRequest(f"{where}: {errors[0]['message']}{more}", errors=errors)


def _turnwire_problem(scope: Scope, error: TurnwireError) -> Response:
    more = dict(error.extra)
    headers = {"Connection": "close"} if more.pop("close", False) else {}
    if error.status in (429, 503):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s or 1)))
    if isinstance(error, Unauthenticated):
        headers["WWW-Authenticate"] = 'Bearer realm="turnwire"'
    if error.errors is not None:
        more["errors"] = error.errors
    return _problem(scope, error.status, error.code, error.title, error.detail, headers, **more)


def _router_problem(scope: Scope, error: HTTPException) -> Response:
    status = HTTPStatus(error.status_code)
    code = _ROUTER_CODES.get(status, status.phrase.lower().replace(" ", "_"))
    detail = f"{scope['method']} {scope['path'][:_SHOWN]}: {status.phrase.lower()}."
    return _problem(scope, status, code, status.phrase, detail, dict(error.headers or {}))


def _problem(
    scope: Scope,
    status: int,
    code: str,
    title: str,
    detail: str,
    headers: dict[str, str] | None = None,
    **more: Any,
) -> Response:
    content = {
        "type": f"urn:turnwire:problem:{code}",
        "title": title,
        "status": status,
        "detail": detail if len(detail) <= MAX_DETAIL else f"{detail[:MAX_DETAIL]}…",
        "code": code,
        "request_id": scope.get(REQUEST_ID),
        **more,
    }
    return Response(dumps(content), status, {**NO_STORE, **(headers or {})}, media_type=PROBLEM)


def _shown(error: dict[str, Any]) -> dict[str, Any]:
    return {"loc": _location(error["loc"]), "message": str(error["msg"]).removeprefix("Value error, ")}


def _location(loc: Sequence[str | int]) -> list[str | int]:
    return [part if isinstance(part, int) else part[:_SHOWN] for part in loc]


def add_error_handlers(app: FastAPI, routers: Sequence[APIRouter]) -> None:
    """Replace FastAPI's own handlers; all else reaches the `ErrorBoundary`."""
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]

    async def on_error(request: Request, error: Exception) -> Response:
        answer = render(request.scope, error)
        if answer.status_code == 405 and (methods := _methods(routes, request.url.path)):
            answer.headers["Allow"] = ", ".join(methods)
        return answer

    app.add_exception_handler(RequestValidationError, on_error)
    app.add_exception_handler(HTTPException, on_error)


def _methods(routes: Sequence[APIRoute], path: str) -> list[str]:
    """All that a path can: the router names only those of the first route that it found."""
    methods = {method for route in routes if route.path_regex.match(path) for method in route.methods or ()}
    return sorted(methods | ({"HEAD"} if "GET" in methods else set()))


class ErrorBoundary:
    """Nothing that is raised passes it; only the middleware that names the request stands before it.

    Errors of middlewares become problems here. A client that left while its body was read gets no answer.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def watch(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except ClientDisconnect:
            return
        except Exception as error:  # the one place where whatever was raised becomes an answer
            if not isinstance(error, TurnwireError):
                logger.exception("request.failed")
            if not started:
                await render(scope, error)(scope, receive, send)
