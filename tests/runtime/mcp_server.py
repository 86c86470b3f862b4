"""A small MCP server for the tests: `python mcp_server.py stdio`, or `http PORT`."""

import asyncio
import os
import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("small")


@server.tool()
def process_id() -> str:
    """The id of the server's process."""
    return str(os.getpid())


@server.tool()
def fail() -> str:
    """Fails."""
    raise ValueError("it broke")


@server.tool()
def die() -> str:
    """Ends the server's process."""
    os._exit(1)


@server.tool()
async def hold(bell: int) -> str:
    """Tells 127.0.0.1:bell that it has begun, returns when it hears back, tells when it is cancelled."""
    reader, writer = await asyncio.open_connection("127.0.0.1", bell)
    try:
        writer.write(b"begun\n")
        return (await reader.readline()).decode().strip()
    except asyncio.CancelledError:
        writer.write(b"cancelled\n")
        raise
    finally:
        writer.close()


@server.prompt()
def greeting(name: str) -> str:
    """Asks for a greeting."""
    return f"Greet {name}."


@server.resource("note://one")
def note() -> str:
    return "a note"


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", port=int(sys.argv[2]))
