"""How an MCP server can fail, told apart: what was never sent, what broke, what came too late."""

import asyncio
from collections.abc import Awaitable, Callable

import anyio
import httpx2
from agents import UserError
from agents.mcp import MCPServer
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, INVALID_REQUEST, REQUEST_TIMEOUT


class Unsent(Exception):
    """The connection was gone before the request could reach the server: it may be sent again."""


class NotAnswered(UserError):
    """The server did not answer in time."""


async def failure_of(action: Callable[[], Awaitable[object]], limit_s: float) -> BaseException | None:
    """Do it within the limit; whatever went wrong is the answer, but for a cancel that is meant for us.

    A transport that collapses cancels whoever waits for it: that is a failure like any other.
    """
    try:
        async with asyncio.timeout(limit_s):
            await action()
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return error
    except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001  a server may fail in any way
        return error
    return None


def is_closed(server: MCPServer) -> bool:
    """True if the connection is known to be gone; the SDK's servers do not tell by themselves."""
    session = getattr(server, "session", None)
    return bool(getattr(getattr(session, "_dispatcher", None), "_closed", False))


def is_unsent(error: BaseException) -> bool:
    """The HTTP server has forgotten the session (it was restarted): it refused the request unread."""
    return (
        isinstance(error, MCPError) and error.code == INVALID_REQUEST and error.message == "Session terminated"
    )


def is_broken(error: BaseException) -> bool:
    if isinstance(error, MCPError):
        return error.code == CONNECTION_CLOSED
    broken = (anyio.ClosedResourceError, anyio.BrokenResourceError, ConnectionError, httpx2.TransportError)
    return isinstance(error, broken) or isinstance(error.__cause__, broken)


def is_timeout(error: BaseException) -> bool:
    return isinstance(error, NotAnswered) or (isinstance(error, MCPError) and error.code == REQUEST_TIMEOUT)


def said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:300]
