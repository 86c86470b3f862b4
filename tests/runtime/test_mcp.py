"""MCP servers stay connected: real ones in processes of their own, over stdio and over HTTP."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, RunConfig, RunContextWrapper, Runner, UserError
from agents.mcp import (
    MCPServer,
    MCPServerStdio,
    MCPServerStdioParams,
    MCPServerStreamableHttp,
    MCPServerStreamableHttpParams,
)
from agents.testing import ScriptedModel, assistant_message, function_call
from agents.tool_context import ToolContext
from anyio import fail_after
from mcp.shared.exceptions import MCPError
from mcp.types import CallToolResult, GetPromptResult, ListPromptsResult, TextContent, Tool
from mcp_types import INVALID_REQUEST

from app.runtime.mcp import McpLimits, MCPServers, SupervisedMCPServer, WatchCall
from tests.ports import unused_port

pytestmark = pytest.mark.anyio

SCRIPT = str(Path(__file__).with_name("mcp_server.py"))
LIMITS = McpLimits(connect_s=10, list_s=5, call_s=5, on_demand_s=8, close_s=8)


def stdio(**options: Any) -> MCPServerStdio:
    params = MCPServerStdioParams(command=sys.executable, args=[SCRIPT, "stdio"])
    return MCPServerStdio(params, name="small", client_session_timeout_seconds=None, **options)


def http(port: int, **options: Any) -> MCPServerStreamableHttp:
    params = MCPServerStreamableHttpParams(url=f"http://127.0.0.1:{port}/mcp?key=s3cret")
    return MCPServerStreamableHttp(params, client_session_timeout_seconds=None, **options)


@asynccontextmanager
async def supervised(
    server: MCPServer, limits: McpLimits = LIMITS, watch_call: WatchCall | None = None
) -> AsyncIterator[SupervisedMCPServer]:
    servers = MCPServers(limits, watch_call)
    keeper = servers.supervised(server)
    await servers.start()
    try:
        yield keeper
    finally:
        with fail_after(10):
            await servers.aclose()


@asynccontextmanager
async def http_process(port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """The HTTP server in a process of its own, listening."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, SCRIPT, "http", str(port), stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        with fail_after(20):
            while b"Uvicorn running" not in await process.stderr.readline():
                assert process.returncode is None
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        with fail_after(5):
            await process.communicate()


class Bell:
    """Where the server's `hold` tool reports: `heard()` waits for its next word, `answer()` lets it return."""

    def __init__(self) -> None:
        self._words: asyncio.Queue[str] = asyncio.Queue()
        self._writers: list[asyncio.StreamWriter] = []
        self.port = 0

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        while line := await reader.readline():
            self._words.put_nowait(line.decode().strip())

    async def heard(self) -> str:
        with fail_after(5):
            return await self._words.get()

    def answer(self) -> None:
        for writer in self._writers:
            writer.write(b"done\n")

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


@pytest.fixture
async def bell() -> AsyncIterator[Bell]:
    bell = Bell()
    listener = await asyncio.start_server(bell.connected, "127.0.0.1", 0)
    bell.port = listener.sockets[0].getsockname()[1]
    async with listener:
        yield bell
        bell.close()


async def text(call: Awaitable[CallToolResult]) -> str:
    with fail_after(10):
        result = await call
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text


async def names(server: MCPServer) -> list[str]:
    with fail_after(10):
        return [tool.name for tool in await server.list_tools()]


async def test_a_server_is_connected_in_the_background_and_offers_all_it_has() -> None:
    async with supervised(stdio()) as server:
        assert not server.connected
        assert await names(server) == ["process_id", "fail", "die", "hold"]
        assert [p.name for p in (await server.list_prompts()).prompts] == ["greeting"]
        assert "Greet Ann." in str(await server.get_prompt("greeting", {"name": "Ann"}))
        assert [str(r.uri) for r in (await server.list_resources()).resources] == ["note://one"]
        assert "a note" in str(await server.read_resource("note://one"))
        assert (await server.list_resource_templates()).resource_templates == []
        assert (await server.call_tool("fail", {})).is_error


async def test_a_server_that_died_is_started_again(caplog: pytest.LogCaptureFixture) -> None:
    async with supervised(stdio(cache_tools_list=True)) as server:
        await names(server)
        first = await text(server.call_tool("process_id", {}))
        with pytest.raises(UserError, match="may have acted or not"):
            await text(server.call_tool("die", {}))
        assert await names(server) == ["process_id", "fail", "die", "hold"]
        assert await text(server.call_tool("process_id", {})) != first
    assert "cancel scope" not in caplog.text


async def test_a_call_that_the_server_dies_in_is_told_to_be_uncertain_and_not_repeated(bell: Bell) -> None:
    async with supervised(stdio()) as server:
        pid = int(await text(server.call_tool("process_id", {})))
        call = asyncio.create_task(server.call_tool("hold", {"bell": bell.port}))
        assert await bell.heard() == "begun"
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(UserError, match="may have acted or not"):
            await text(call)
        assert await text(server.call_tool("process_id", {})) != str(pid)


async def test_a_server_that_is_down_costs_its_tools_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    port = unused_port()
    async with supervised(http(port)) as server:
        assert await names(server) == []
        assert await names(server) == []
        with pytest.raises(UserError, match="not available"):
            await server.call_tool("process_id", {})
        down = [r for r in caplog.records if "is down" in r.getMessage()]
        assert len(down) == 1
        async with http_process(port):
            with fail_after(10):
                await server.wait_until_connected()
            assert "process_id" in await names(server)
            assert int(await text(server.call_tool("process_id", {})))
    assert "s3cret" not in caplog.text
    assert "cancel scope" not in caplog.text


async def test_an_http_server_that_was_restarted_is_used_again(caplog: pytest.LogCaptureFixture) -> None:
    port = unused_port()
    async with supervised(http(port, cache_tools_list=True)) as server:
        async with http_process(port):
            with fail_after(10):
                await server.wait_until_connected()
            first = await text(server.call_tool("process_id", {}))
        async with http_process(port):
            second = await _pid(server)
            assert second
            assert second != first
            assert await names(server) == ["process_id", "fail", "die", "hold"]
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR and "cancel scope" in r.getMessage()]


async def _pid(server: SupervisedMCPServer) -> str:
    """The process that answers, asked again if the first question met a connection that had broken."""
    try:
        return await text(server.call_tool("process_id", {}))
    except UserError:
        with fail_after(10):
            await server.wait_until_connected()
        return await text(server.call_tool("process_id", {}))


@pytest.mark.parametrize("kind", ["stdio", "http"])
async def test_a_cancelled_call_ends_at_once_and_leaves_the_connection_to_others(kind: str, bell: Bell) -> None:
    async with _either(kind) as server:
        pid = await text(server.call_tool("process_id", {}))
        call = asyncio.create_task(server.call_tool("hold", {"bell": bell.port}))
        assert await bell.heard() == "begun"
        call.cancel()
        with fail_after(0.5), pytest.raises(asyncio.CancelledError):
            await call
        assert await bell.heard() == "cancelled"
        assert await text(server.call_tool("process_id", {})) == pid


@pytest.mark.parametrize("kind", ["stdio", "http"])
async def test_a_slow_call_does_not_stop_the_others(kind: str, bell: Bell) -> None:
    async with _either(kind) as server:
        call = asyncio.create_task(server.call_tool("hold", {"bell": bell.port}))
        assert await bell.heard() == "begun"
        assert await text(server.call_tool("process_id", {}))
        assert "hold" in await names(server)
        bell.answer()
        assert await text(call) == "done"


@pytest.mark.parametrize("kind", ["stdio", "http"])
async def test_closing_ends_a_call_under_way(kind: str, bell: Bell, caplog: pytest.LogCaptureFixture) -> None:
    async with _either(kind) as server:
        call = asyncio.create_task(server.call_tool("hold", {"bell": bell.port}))
        assert await bell.heard() == "begun"
        with fail_after(10):
            await server.cleanup()
        with pytest.raises(UserError, match="being closed"):
            await call
        with pytest.raises(UserError, match="not available"):
            await server.call_tool("process_id", {})
    assert "cancel scope" not in caplog.text
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR]


@asynccontextmanager
async def _either(kind: str) -> AsyncIterator[SupervisedMCPServer]:
    if kind == "stdio":
        async with supervised(stdio()) as server:
            yield server
        return
    port = unused_port()
    async with http_process(port), supervised(http(port)) as server:
        yield server


async def test_the_servers_process_is_gone_after_closing() -> None:
    async with supervised(stdio()) as server:
        pid = int(await text(server.call_tool("process_id", {})))
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_call_has_an_end(bell: Bell) -> None:
    async with supervised(stdio(), McpLimits(call_s=0.2)) as server:
        await names(server)
        with pytest.raises(UserError, match=r"did not answer within 0\.2 seconds"):
            await server.call_tool("hold", {"bell": bell.port})
        assert await bell.heard() == "begun"
        assert await bell.heard() == "cancelled"


async def test_a_server_that_its_owner_connected_is_taken_over() -> None:
    own = stdio()
    await own.connect()  # type: ignore[no-untyped-call]
    pid = await text(own.call_tool("process_id", {}))
    async with supervised(own) as server:
        assert await text(server.call_tool("process_id", {})) == pid
    assert own.session is None


async def test_an_agent_uses_a_supervised_server_like_any_other() -> None:
    watched: list[tuple[str, str]] = []

    async def watch(
        context: RunContextWrapper[Any], call: Callable[[], Awaitable[CallToolResult]]
    ) -> CallToolResult:
        assert isinstance(context, ToolContext)
        watched.append((context.tool_name, context.tool_call_id))
        return await call()

    seen: list[Any] = []
    server = stdio(
        tool_filter={"allowed_tool_names": ["process_id", "fail"]},
        require_approval={"fail": "always"},
        use_structured_content=True,
        tool_meta_resolver=lambda context: seen.append(context.tool_name),
    )
    model = ScriptedModel(
        [[function_call("process_id", {}, call_id="c1")], [function_call("fail", {}, call_id="c2")]]
    )
    async with supervised(server, watch_call=watch) as keeper:
        agent = Agent(name="a", model=model, mcp_servers=[keeper])
        with fail_after(20):
            result = await Runner.run(agent, "go", run_config=RunConfig(tracing_disabled=True))
    assert [i.name for i in result.interruptions] == ["fail"]
    assert '"result"' in str(result.to_input_list())
    assert watched == [("process_id", "c1")]
    assert seen == ["process_id"]
    assert sorted(t.name for t in model.calls[0].tools) == ["fail", "process_id"]


async def test_an_agent_runs_without_the_tools_of_a_server_that_is_down() -> None:
    model = ScriptedModel([[assistant_message("Hi")]])
    async with supervised(http(unused_port())) as server:
        agent = Agent(name="a", model=model, mcp_servers=[server])
        with fail_after(20):
            result = await Runner.run(agent, "go", run_config=RunConfig(tracing_disabled=True))
    assert result.final_output == "Hi"
    assert model.calls[0].tools == []


class Forgetful(MCPServer):
    """A server in this process that behaves as it is told to."""

    def __init__(self, *failures: Exception | float) -> None:
        super().__init__()
        self.failures = list(failures)
        self.connects = 0
        self.calls = 0

    async def connect(self) -> None:
        self.connects += 1

    async def cleanup(self) -> None:
        pass

    @property
    def name(self) -> str:
        return "forgetful"

    async def list_tools(self, run_context: Any = None, agent: Any = None) -> list[Tool]:
        await self._misbehave()
        return [Tool(name="t", input_schema={})]

    async def call_tool(
        self, tool_name: str, arguments: dict[str, Any] | None, meta: dict[str, Any] | None = None
    ) -> CallToolResult:
        self.calls += 1
        await self._misbehave()
        return CallToolResult(content=[TextContent(type="text", text="ok")])

    async def _misbehave(self) -> None:
        match self.failures.pop(0) if self.failures else None:
            case Exception() as failure:
                raise failure
            case float() as seconds:
                await asyncio.sleep(seconds)

    async def list_prompts(self) -> ListPromptsResult:
        raise NotImplementedError

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None) -> GetPromptResult:
        raise NotImplementedError


async def test_a_call_that_the_server_refused_unread_is_sent_again_on_a_new_connection() -> None:
    forgot = MCPError(code=INVALID_REQUEST, message="Session terminated")
    async with supervised(Forgetful(forgot)) as server:
        assert await text(server.call_tool("t", {})) == "ok"
        assert isinstance(server.server, Forgetful)
        assert (server.server.connects, server.server.calls) == (2, 2)


async def test_a_server_that_does_not_list_its_tools_costs_them_and_gets_a_new_connection() -> None:
    async with supervised(Forgetful(60.0), McpLimits(list_s=0.1)) as server:
        assert await names(server) == []
        assert await names(server) == ["t"]
        assert isinstance(server.server, Forgetful)
        assert server.server.connects == 2


async def test_an_error_that_a_server_answers_is_passed_on_and_keeps_the_connection() -> None:
    async with supervised(Forgetful(MCPError(code=-32602, message="no such tool"))) as server:
        with pytest.raises(MCPError, match="no such tool"):
            await server.call_tool("t", {})
        assert server.connected
        assert isinstance(server.server, Forgetful)
        assert server.server.connects == 1


class Collapsing(Forgetful):
    """Its transport has collapsed: waiting for it to close is cancelled from within."""

    async def cleanup(self) -> None:
        raise asyncio.CancelledError


async def test_a_connection_that_collapses_while_it_is_closed_is_replaced() -> None:
    async with supervised(Collapsing(ConnectionResetError())) as server:
        with pytest.raises(UserError, match="may have acted or not"):
            await server.call_tool("t", {})
        assert await text(server.call_tool("t", {})) == "ok"


async def test_a_late_failure_of_an_earlier_connection_leaves_the_new_one() -> None:
    own = Forgetful(MCPError(code=INVALID_REQUEST, message="Session terminated"))
    async with supervised(own) as server:
        assert await text(server.call_tool("t", {})) == "ok"
        assert own.connects == 2
        server._lose(1)
        assert server.connected


async def test_closing_does_not_wait_for_a_server_that_never_answers() -> None:
    reached = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        await reader.read()
        writer.close()

    listener = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with listener, supervised(http(listener.sockets[0].getsockname()[1])) as server:
        with fail_after(5):
            await reached.wait()
        assert not server.connected
        with fail_after(2):
            await server.cleanup()


def test_each_server_has_one_keeper() -> None:
    servers = MCPServers()
    one, other = Forgetful(), Forgetful()
    keeper = servers.supervised(one)
    assert servers.supervised(one) is keeper
    assert servers.supervised(keeper) is keeper
    assert servers.supervised(other) is not keeper
