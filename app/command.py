"""The command `turnwire`: serve until a signal says stop.

It stands beside `__main__` because a child that `--reload` starts imports its functions by their module's name.
"""

import argparse
import asyncio
import ctypes
import gc
import os
import sys
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from socket import socket
from typing import NoReturn

import uvicorn
import uvloop
from uvicorn.supervisors import ChangeReload

from app import settings as settings_module
from app.keys import secrets
from app.main import create_app
from app.observability.logs import Logging
from app.observability.redaction import Redactor
from app.server import Server, config, listen
from app.services import Services, StartError, open_services
from app.settings import Settings, SettingsError

WRONG_SETTINGS = 2
CANNOT_START = 1
SWITCH_S = 0.001
_M_MMAP_THRESHOLD = -3
LARGE_BYTES = 128 * 1024


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    options = _parser().parse_args(arguments)
    settings = _settings()
    listening = _listen(settings)
    if options.reload:
        _supervise(listening)
    serve([listening])


def serve(sockets: list[socket]) -> NoReturn:
    """Serve on these sockets, then leave the process, whatever threads and tasks still run."""
    settings = _settings()
    _give_large_blocks_back()
    try:
        redactor = Redactor(secrets(settings))
        with Logging(redactor, level=settings.log_level, log_format=settings.log_format) as logs:
            # Never closed: that would wait for tasks of agents' code that take no cancellation.
            asyncio.Runner(loop_factory=uvloop.new_event_loop).run(_serve(settings, sockets, logs))
    except SettingsError as error:
        _refuse(str(error), WRONG_SETTINGS)
    except StartError as error:
        _refuse(str(error), CANNOT_START)
    _exit(0)


async def _serve(settings: Settings, sockets: list[socket], logs: Logging) -> None:
    app = create_app(settings, partial(open_services, log_lines_dropped=lambda: logs.dropped))
    server = Server(config(app))
    with server.capture_signals():
        async with app.router.lifespan_context(app) as state:
            server.state = dict(state or {})
            services: Services = server.state["services"]
            server.drain = services.drain
            _keep_pauses_short()
            await server.serve(sockets)


def _give_large_blocks_back() -> None:
    """Have glibc give a large block back to the system when it is freed.

    That is so at first, but each large block that is freed makes it keep larger ones, up to 32 MiB: 150
    listeners that read nothing left the process 390 MB larger, and with a fixed size 110. Elsewhere there is
    nothing to fix.
    """
    if sys.platform == "linux" and "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)


def _keep_pauses_short() -> None:
    """What the interpreter itself may hold the event loop up with, once everything is loaded and built.

    A full collection walks all objects: those of the start, half a million, are taken out of it (250 ms became
    10). And a thread that computes gives way after a millisecond, not five.
    """
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(SWITCH_S)


def _supervise(listening: socket) -> NoReturn:
    """Restart a child that serves whenever a Python file in the watched folders changes."""
    watching = uvicorn.Config("app.main:create_app", reload=True, reload_dirs=_watched(), log_config=None)
    ChangeReload(watching, target=serve_child, sockets=[listening]).run()
    _exit(0)


def _watched() -> list[str]:
    """The current folder and those of PYTHONPATH: there lie the agents that are being written."""
    folders = ["", *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return [str(folder) for folder in map(Path, folders) if folder.is_dir()]


def serve_child(sockets: list[socket] | None = None) -> NoReturn:
    for handed_over in sockets or []:
        handed_over.set_inheritable(False)  # it came by inheritance, and goes no further
    serve(sockets or [])


def _settings() -> Settings:
    try:
        return settings_module.load()
    except SettingsError as error:
        _refuse(str(error), WRONG_SETTINGS)


def _listen(settings: Settings) -> socket:
    try:
        return listen(settings.host, settings.port, settings.listener_stall_s)
    except OSError as error:
        _refuse(f"cannot listen on {settings.host} port {settings.port}: {error.strerror}", CANNOT_START)


def _refuse(reason: str, status: int) -> NoReturn:
    sys.stderr.write(f"turnwire: {reason}\n")
    _exit(status)


def _exit(status: int) -> NoReturn:
    """At once: the interpreter would wait for the thread of a tool that does not return."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="turnwire",
        description="Serve agent turns over HTTP. It is configured by environment variables: docs/settings.md.",
    )
    parser.add_argument("--version", action="version", version=version("turnwire"))
    parser.add_argument(
        "--reload",
        action="store_true",
        help="restart when a Python file under the current folder or one of PYTHONPATH changes",
    )
    return parser
