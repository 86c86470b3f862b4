"""MCP servers of agents, kept connected for as long as the service runs.

The SDK leaves a server's connection to its user: it is opened and closed by hand, in one task (closing it in
another raises cancel-scope errors), and once it has broken every later call on it fails. Here each server has
a keeper, one task that connects it, watches it, closes what has broken and connects again, with growing
pauses and at once when somebody asks. A server that is down costs its tools, never the turn.

Three private things of the SDK are leant on, each tolerated if it is gone, the version being pinned: the mark
by which an HTTP server lets only one request through at a time (a slow tool of one turn would stop the others,
and MCP 2 has no need of it), the flag that a session's dispatcher has closed, and a server's policies for
approvals and failures, which belong to the server that we stand in for.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from agents import RunContextWrapper, UserError
from agents.agent import AgentBase
from agents.mcp import MCPServer, MCPToolMetaContext
from agents.tool import ToolErrorFunction
from mcp.types import (
    CallToolResult,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
    Tool,
)

from app.runtime.mcp_failures import (
    NotAnswered,
    Unsent,
    failure_of,
    is_broken,
    is_closed,
    is_timeout,
    is_unsent,
    said,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_RETRY_S = 1.0
LAST_RETRY_S = 30.0
WATCH_S = 1.0
"""How often a connection is looked at that nobody uses."""

WatchCall = Callable[
    [RunContextWrapper[Any], Callable[[], Awaitable[CallToolResult]]], Awaitable[CallToolResult]
]
"""Stands around each tool call: gets the call's `ToolContext` and the call itself, which it awaits once."""

_calling: ContextVar[RunContextWrapper[Any] | None] = ContextVar("turnwire_mcp_calling", default=None)


@dataclass(frozen=True, slots=True)
class McpLimits:
    """In seconds. `on_demand_s` is how long a turn waits for a server that is not connected."""

    connect_s: float = 10
    list_s: float = 10
    call_s: float = 120
    on_demand_s: float = 5
    close_s: float = 8


class SupervisedMCPServer(MCPServer):
    """Any SDK server, kept connected. Start it by `start()`, end it by `cleanup()`.

    Tools are listed by the server itself, from its cache if it has one; the cache is cleared with each new
    connection. A call that was under way when the connection broke is not repeated: it may have taken effect.
    """

    def __init__(self, server: MCPServer, limits: McpLimits, watch_call: WatchCall | None = None) -> None:
        super().__init__(
            use_structured_content=server.use_structured_content,
            tool_meta_resolver=self._resolve_meta,
            custom_data_extractor=server.custom_data_extractor,
            tool_input_guardrails=server.tool_input_guardrails,
            tool_output_guardrails=server.tool_output_guardrails,
        )
        self.server = server
        self._needs_approval_policy = getattr(server, "_needs_approval_policy", False)
        self._limits = limits
        self._watch_call = watch_call
        self._keeper: asyncio.Task[None] | None = None
        self._requests: set[asyncio.Future[Any]] = set()
        self._closing = False
        self._connecting = False
        self._connection = 0
        self._up = asyncio.Event()
        self._slow = False
        self._failed_at = float("-inf")
        self._told_down = False
        self._wake = asyncio.Event()
        self._settled = asyncio.Event()
        if getattr(server, "_serialize_session_requests", False):
            server._serialize_session_requests = False  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "server" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.__dict__["server"], name)

    # the connection

    @property
    def connected(self) -> bool:
        return self._up.is_set() and not is_closed(self.server)

    def start(self) -> None:
        """Begin to keep the server connected; returns at once."""
        if self._keeper is None:
            self._closing = False
            self._keeper = asyncio.create_task(self._keep(), name=f"mcp {self._error_name}")

    async def connect(self) -> None:
        """Start, and wait until the server is connected; raises UserError if it cannot be reached now."""
        self.start()
        await self._require()

    async def wait_until_connected(self) -> None:
        """Return once the server is connected, however long it takes: the caller sets the bound."""
        await self._up.wait()

    async def cleanup(self) -> None:
        """End the calls under way and close the connection, within `close_s`."""
        self._closing = True
        for request in list(self._requests):
            request.cancel()
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        self._lose()
        if self._connecting:
            keeper.cancel()
        _, late = await asyncio.wait({keeper, *self._requests}, timeout=self._limits.close_s)
        if late:
            logger.warning("MCP server %r did not close in time and is abandoned", self._error_name)
            keeper.cancel()

    async def _keep(self) -> None:
        pause = FIRST_RETRY_S
        while not self._closing:
            if await self._connected():
                pause = FIRST_RETRY_S
                await self._until_lost()
                await self._disconnect()
            elif not self._closing:
                await self._woken_within(pause)
                pause = min(pause * 2, LAST_RETRY_S)

    async def _woken_within(self, seconds: float) -> None:
        """Wait to be woken. Whoever wakes sets its flag first, so that clearing here loses nothing."""
        self._wake.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    async def _connected(self) -> bool:
        clock = asyncio.get_running_loop().time
        began = clock()
        failure = await self._connect_once()
        if failure is None:
            self._connection += 1
            self._up.set()
            self._slow = self._told_down = False
            logger.info("MCP server %r is connected", self._error_name)
        else:
            self._slow = clock() - began >= self._limits.on_demand_s
            self._failed_at = clock()
            self._tell_down(failure)
        settled, self._settled = self._settled, asyncio.Event()
        settled.set()
        return failure is None

    async def _connect_once(self) -> BaseException | None:
        if getattr(self.server, "session", None) is not None and not is_closed(self.server):
            return None  # whoever made the agent connected it already
        self._connecting = True
        try:
            return await failure_of(self.server.connect, self._limits.connect_s)
        finally:
            self._connecting = False

    async def _until_lost(self) -> None:
        while self._up.is_set() and not self._closing:
            await self._woken_within(WATCH_S)
            if self._up.is_set() and is_closed(self.server):
                self._tell_down("the connection is closed")
                self._lose()

    async def _disconnect(self) -> None:
        failure = await failure_of(self.server.cleanup, self._limits.close_s)
        if failure is not None:  # what could not be closed is replaced all the same
            logger.warning("MCP server %r did not close: %s", self._error_name, said(failure))
        invalidate = getattr(self.server, "invalidate_tools_cache", None)
        if callable(invalidate):
            invalidate()

    def _lose(self, connection: int | None = None) -> None:
        """The connection is of no more use; a late word about an earlier one changes nothing."""
        if connection not in (None, self._connection):
            return
        self._up.clear()
        self._wake.set()

    def _tell_down(self, why: BaseException | str) -> None:
        """Log once for each time that the server is down."""
        if not self._told_down and not self._closing:
            self._told_down = True
            reason = why if isinstance(why, str) else said(why)
            logger.warning("MCP server %r is down, its tools are absent: %s", self._error_name, reason)

    async def _available(self) -> bool:
        """True once the server is connected; waits for it, but not for one that was slow or has just failed."""
        if self._up.is_set() and is_closed(self.server):
            self._lose()
        now = asyncio.get_running_loop().time()
        if (
            self._up.is_set()
            or self._closing
            or self._keeper is None
            or self._slow
            or now - self._failed_at < FIRST_RETRY_S
        ):
            return self._up.is_set() and not self._closing
        settled = self._settled
        self._wake.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.on_demand_s):
                await settled.wait()
        return self._up.is_set()

    async def _require(self) -> None:
        if not await self._available():
            raise UserError(f"MCP server {self._error_name!r} is not available")

    # requests

    async def _request(self, send: Callable[[], Awaitable[T]], limit_s: float) -> T:
        """Send in a task of its own, which ends with the caller, at the limit, or when the service stops.

        A cancelled caller does not wait until the server has been told.
        """
        await self._require()
        connection = self._connection
        request = asyncio.ensure_future(send())
        self._requests.add(request)
        request.add_done_callback(self._forget)
        try:
            done, _ = await asyncio.wait({request}, timeout=limit_s)
        finally:
            request.cancel()
        if not done:
            raise NotAnswered(f"MCP server {self._error_name!r} did not answer within {limit_s:g} seconds")
        if request.cancelled() and self._closing:
            raise UserError(f"MCP server {self._error_name!r} is being closed")
        if request.cancelled():
            raise self._broken(connection, None)
        error = request.exception()
        if error is None:
            return request.result()
        if is_unsent(error):
            self._lose(connection)
            raise Unsent from error
        raise self._broken(connection, error) if is_broken(error) else error

    def _broken(self, connection: int, error: BaseException | None) -> UserError:
        self._lose(connection)
        broken = UserError(f"the connection to MCP server {self._error_name!r} broke: it may have acted or not")
        broken.__cause__ = error
        return broken

    def _forget(self, request: asyncio.Future[Any]) -> None:
        self._requests.discard(request)
        if not request.cancelled():
            request.exception()  # else a failure that nobody waits for any more is logged with a traceback

    async def _again_if_unsent(self, send: Callable[[], Awaitable[T]], limit_s: float) -> T:
        try:
            return await self._request(send, limit_s)
        except Unsent:
            try:
                return await self._request(send, limit_s)
            except Unsent as error:
                raise self._broken(self._connection, error) from error

    # tools

    async def list_tools(
        self, run_context: RunContextWrapper[Any] | None = None, agent: AgentBase[Any] | None = None
    ) -> list[Tool]:
        """The tools of the server; none while it is down or does not answer."""
        for _ in range(2):
            if not await self._available():
                return []
            try:
                return await self._request(
                    lambda: self.server.list_tools(run_context, agent), self._limits.list_s
                )
            except Exception as error:  # noqa: BLE001  a server may fail in any way, the turn goes on without
                self._tell_down(error)
                if is_timeout(error):
                    self._lose()
                    return []
                if self._up.is_set():
                    return []
        return []

    async def call_tool(
        self, tool_name: str, arguments: dict[str, Any] | None, meta: dict[str, Any] | None = None
    ) -> CallToolResult:
        """Raises UserError if the server is down, does not answer in time, or goes away meanwhile."""

        async def send() -> CallToolResult:
            return await self._again_if_unsent(
                lambda: self.server.call_tool(tool_name, arguments, **({"meta": meta} if meta else {})),
                self._limits.call_s,
            )

        context = _calling.get()
        if self._watch_call is None or context is None:
            return await send()
        return await self._watch_call(context, send)

    async def _resolve_meta(self, context: MCPToolMetaContext) -> dict[str, Any] | None:
        """The SDK asks right before each call, in the same context: here is the only place that tells whose
        call it is."""
        _calling.set(context.run_context)
        resolver = self.server.tool_meta_resolver
        if resolver is None:
            return None
        meta = resolver(context)
        return await meta if isinstance(meta, Awaitable) else meta

    # the rest of what a server offers

    @property
    def name(self) -> str:
        return self.server.name

    @property
    def cached_tools(self) -> list[Tool] | None:
        return self.server.cached_tools if self._up.is_set() else None

    async def list_prompts(self) -> ListPromptsResult:
        return await self._again_if_unsent(self.server.list_prompts, self._limits.list_s)

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None) -> GetPromptResult:
        return await self._again_if_unsent(lambda: self.server.get_prompt(name, arguments), self._limits.call_s)

    async def list_resources(self, cursor: str | None = None) -> ListResourcesResult:
        return await self._again_if_unsent(lambda: self.server.list_resources(cursor), self._limits.list_s)

    async def list_resource_templates(self, cursor: str | None = None) -> ListResourceTemplatesResult:
        return await self._again_if_unsent(
            lambda: self.server.list_resource_templates(cursor), self._limits.list_s
        )

    async def read_resource(self, uri: str) -> ReadResourceResult:
        return await self._again_if_unsent(lambda: self.server.read_resource(uri), self._limits.call_s)

    def _get_needs_approval_for_tool(self, tool: Tool, agent: AgentBase[Any] | None) -> Any:
        return self.server._get_needs_approval_for_tool(tool, agent)

    def _get_failure_error_function(
        self, agent_failure_error_function: ToolErrorFunction | None
    ) -> ToolErrorFunction | None:
        return self.server._get_failure_error_function(agent_failure_error_function)


class MCPServers:
    """All MCP servers of the registered agents: one keeper for each server object."""

    def __init__(self, limits: McpLimits | None = None, watch_call: WatchCall | None = None) -> None:
        self._limits = limits or McpLimits()
        self._watch_call = watch_call
        self._servers: dict[int, SupervisedMCPServer] = {}
        self._started = False

    def __iter__(self) -> Iterator[SupervisedMCPServer]:
        return iter(self._servers.values())

    def supervised(self, server: MCPServer) -> SupervisedMCPServer:
        """The keeper of `server`, always the same one; a keeper comes back as it is."""
        if isinstance(server, SupervisedMCPServer):
            return server
        keeper = self._servers.get(id(server))
        if keeper is None:
            keeper = self._servers[id(server)] = SupervisedMCPServer(server, self._limits, self._watch_call)
            if self._started:
                keeper.start()
        return keeper

    async def start(self) -> None:
        """Connect all in the background; the service does not wait for them."""
        self._started = True
        for keeper in self._servers.values():
            keeper.start()

    async def aclose(self) -> None:
        """Close all at once, each within its `close_s`."""
        self._started = False
        await asyncio.gather(*(keeper.cleanup() for keeper in self._servers.values()))
