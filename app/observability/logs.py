"""Structured logs: one record a line on stderr, written by a thread of its own.

Whoever logs pays for the message and a put into a bounded queue. Rendering, tracebacks (which read source
files), masking and the write happen on the thread: a stderr that nobody reads costs lines, which are counted,
and never a moment of the event loop. What a record belongs to comes from three context variables.
"""

import json
import logging
import os
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal

from app.observability.redaction import Redactor

LogFormat = Literal["json", "text"]

request_id: ContextVar[str | None] = ContextVar("turnwire_request_id", default=None)
turn_id: ContextVar[str | None] = ContextVar("turnwire_turn_id", default=None)
conversation_id: ContextVar[str | None] = ContextVar("turnwire_conversation_id", default=None)
_CONTEXT = {"request_id": request_id, "turn_id": turn_id, "conversation_id": conversation_id}

ROUTED = ("uvicorn", "uvicorn.error", "uvicorn.access", "openai", "openai.agents", "py.warnings")
"""Loggers that may come with handlers of their own: they get ours instead."""
QUIET = ("uvicorn.access", "openai", "openai.agents", "httpx2", "httpcore2", "mcp", "alembic", "asyncio")
"""Libraries whose chatter may hold what users say: from them warnings and errors only."""
STDERR = 2
CAPACITY = 10_000
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "context", "color_message"}


@contextmanager
def log_context(**ids: str | None) -> Iterator[None]:
    """Records made inside carry these ids: any of `request_id`, `turn_id`, `conversation_id`."""
    tokens = [(_CONTEXT[name], _CONTEXT[name].set(value)) for name, value in ids.items()]
    try:
        yield
    finally:
        for variable, token in reversed(tokens):
            variable.reset(token)


class QueueingHandler(logging.Handler):
    """Hands records to the writer's queue; counts those for which there is no room."""

    def __init__(self, records: "queue.Queue[logging.LogRecord | None]") -> None:
        super().__init__()
        self.dropped = 0
        self._records = records

    def emit(self, record: logging.LogRecord) -> None:
        record.message = _message(record)
        record.args = None
        record.context = {name: v for name, variable in _CONTEXT.items() if (v := variable.get()) is not None}
        try:
            self._records.put_nowait(record)
        except queue.Full:
            self.dropped += 1


class JsonLines(logging.Formatter):
    """`at`, `level`, `logger`, `message`, the ids, what was passed as `extra`, and `exception`."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.message,
            **getattr(record, "context", {}),
            **_extra(record),
        }
        if trace := _trace(self, record):
            line["exception"] = trace
        return json.dumps(self._redactor.redact_value(line))


class TextLines(logging.Formatter):
    """For people: one line a record. Only a traceback takes more, each of its lines indented."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        fields = {**getattr(record, "context", {}), **_extra(record)}
        parts = [_timestamp(record), f"{record.levelname.lower():7}", record.name, _one_line(record.message)]
        parts += [f"{name}={_one_line(str(value))}" for name, value in fields.items()]
        line = " ".join(parts)
        if trace := _trace(self, record):
            line += "".join(f"\n    {row}" for row in trace.splitlines())
        return self._redactor.redact(line)


class Logging:
    """Takes over the root logger for the life of the service: `with Logging(...):`."""

    def __init__(
        self,
        redactor: Redactor,
        *,
        level: str = "info",
        log_format: LogFormat = "json",
        fd: int = STDERR,
        capacity: int = CAPACITY,
    ) -> None:
        self._level = level.upper()
        self._fd = fd
        self._formatter = JsonLines(redactor) if log_format == "json" else TextLines(redactor)
        self._records: queue.Queue[logging.LogRecord | None] = queue.Queue(capacity)
        self._handler = QueueingHandler(self._records)
        self._reported = 0
        self._writer = threading.Thread(target=self._write_all, name="turnwire-logs", daemon=True)
        self._before: dict[str, tuple[list[logging.Handler], int, bool]] = {}

    @property
    def dropped(self) -> int:
        """Lines that were lost because stderr was too slow."""
        return self._handler.dropped

    def __enter__(self) -> "Logging":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self._writer.start()
        self._take("", [self._handler], self._level)
        for name in {*ROUTED, *QUIET}:
            self._take(name, [], _louder(self._level, "WARNING") if name in QUIET else logging.NOTSET)
        logging.captureWarnings(True)

    def stop(self, timeout_s: float = 2.0) -> None:
        """Give the loggers back and write what waits, but never wait longer for a stderr that is stuck."""
        logging.captureWarnings(False)
        for name, (handlers, level, propagate) in self._before.items():
            logger = logging.getLogger(name)
            logger.handlers[:], logger.propagate = handlers, propagate
            logger.setLevel(level)
        try:
            self._records.put(None, timeout=timeout_s)
        except queue.Full:
            return
        self._writer.join(timeout_s)

    def _take(self, name: str, handlers: list[logging.Handler], level: int | str) -> None:
        logger = logging.getLogger(name)
        self._before[name] = (list(logger.handlers), logger.level, logger.propagate)
        logger.handlers[:], logger.propagate = handlers, True
        logger.setLevel(level)

    def _write_all(self) -> None:
        while (record := self._records.get()) is not None:
            self._write(self._render(record))
            self._report_dropped()
        self._report_dropped()

    def _render(self, record: logging.LogRecord) -> str:
        try:
            return self._formatter.format(record)
        except Exception:  # noqa: BLE001 - one record that cannot be rendered must not end the log
            return self._formatter.format(_plain(record.name, "a record could not be rendered"))

    def _report_dropped(self) -> None:
        dropped = self._handler.dropped
        if dropped > self._reported:
            lost, self._reported = dropped - self._reported, dropped
            self._write(self._formatter.format(_plain(__name__, f"{lost} log lines were dropped")))

    def _write(self, line: str) -> None:
        """To the file descriptor itself: a thread that is stuck in it must not hold the interpreter's own lock
        on stderr when the process exits."""
        data = line.encode("utf-8", "backslashreplace") + b"\n"
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:
            self._handler.dropped += 1


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - a wrong call to a logger costs its arguments, never the caller
        return str(record.msg)


def _plain(name: str, message: str) -> logging.LogRecord:
    record = logging.LogRecord(name, logging.WARNING, "", 0, message, None, None)
    record.message = message
    return record


def _timestamp(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = [formatter.formatException(record.exc_info)] if record.exc_info and record.exc_info[0] else []
    return "\n".join(parts + ([record.stack_info] if record.stack_info else []))


def _one_line(text: str) -> str:
    """No record may look like two: line breaks and other controls are shown escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _louder(one: str, other: str) -> str:
    levels = logging.getLevelNamesMapping()
    return max(one, other, key=lambda name: levels[name])
