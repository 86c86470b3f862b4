import json
import logging
import os
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app.observability.logs import LogFormat, Logging, log_context
from app.observability.redaction import MASK, Redactor
from tests.bounds import BOUND_S

SECRET = "correct-horse-battery"
logger = logging.getLogger("app.turns")


@dataclass
class Written:
    """The file that stands for stderr."""

    path: Path
    fd: int

    def logging(self, log_format: LogFormat = "json", level: str = "info") -> Logging:
        return Logging(Redactor([SECRET]), level=level, log_format=log_format, fd=self.fd)

    @property
    def text(self) -> str:
        return self.path.read_text()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    path = tmp_path / "stderr"
    fd = os.open(path, os.O_CREAT | os.O_WRONLY)
    yield Written(path, fd)
    os.close(fd)


def test_a_record_is_one_line_of_json_with_its_ids_and_extras(written: Written) -> None:
    with written.logging(), log_context(request_id="req_1", turn_id="turn_1"):
        with log_context(conversation_id="conv_1"):
            logger.info("turn.%s", "ended", extra={"status": "completed", "usage": {"requests": 2}})
        logger.warning("two\nlines")
    first, second = written.lines
    assert first.pop("at").endswith("Z")
    assert first == {
        "level": "info",
        "logger": "app.turns",
        "message": "turn.ended",
        "request_id": "req_1",
        "turn_id": "turn_1",
        "conversation_id": "conv_1",
        "status": "completed",
        "usage": {"requests": 2},
    }
    assert second["message"] == "two\nlines"
    assert "conversation_id" not in second


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_a_secret_is_masked_in_message_arguments_extras_and_exceptions(
    written: Written, log_format: LogFormat
) -> None:
    with written.logging(log_format):
        logger.info("is %s", SECRET, extra={"nested": {"key": [SECRET]}})
        try:
            raise ValueError(f"no {SECRET}")
        except ValueError:
            logger.exception("failed with sk-abcdefgh12345678")
    assert SECRET not in written.text
    assert "sk-abcdefgh" not in written.text
    assert written.text.count(MASK) == 4
    assert "ValueError: no " in written.text


def test_text_is_one_line_a_record_and_only_a_traceback_takes_more(written: Written) -> None:
    with written.logging("text"), log_context(turn_id="turn_1"):
        logger.info("forged\n2026-01-01 error", extra={"x": "a\r\nb"})
        try:
            raise ValueError("boom")
        except ValueError:
            logger.exception("failed")
    first, second, *trace = written.text.splitlines()
    assert first.endswith("app.turns forged\\n2026-01-01 error turn_id=turn_1 x=a\\r\\nb")
    assert second.endswith("app.turns failed turn_id=turn_1")
    assert trace
    assert all(line.startswith("    ") for line in trace)


def test_uvicorn_the_sdk_and_warnings_go_through_it_and_get_their_own_back(written: Written) -> None:
    uvicorn = logging.getLogger("uvicorn.error")
    own = logging.NullHandler()
    uvicorn.addHandler(own)
    uvicorn.propagate = False
    with written.logging():
        uvicorn.info("Started")
        logging.getLogger("openai.agents").info("what a user said")
        logging.getLogger("openai.agents").error("sdk failed")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            logging.captureWarnings(True)
            warnings.warn("old", UserWarning, stacklevel=1)
    assert uvicorn.handlers == [own]
    assert uvicorn.propagate is False
    uvicorn.removeHandler(own)
    uvicorn.propagate = True
    assert [line["logger"] for line in written.lines] == ["uvicorn.error", "openai.agents", "py.warnings"]


def test_levels_below_the_setting_are_not_written(written: Written) -> None:
    with written.logging(level="error"):
        logger.warning("no")
        logging.getLogger("openai.agents").warning("no")
        logger.error("yes")
    assert [line["message"] for line in written.lines] == ["yes"]


def test_a_wrong_call_of_a_logger_is_still_a_line(written: Written) -> None:
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    with written.logging():
        logger.info("only %d here", "one")
        logger.info("extra", extra={"broken": Broken()})
        logger.info("lone \ud800")
    assert [line["message"] for line in written.lines] == [
        "only %d here",
        "a record could not be rendered",
        "lone \ud800",
    ]


def test_a_stderr_that_nobody_reads_costs_lines_and_no_time() -> None:
    reader, writer = os.pipe()
    logs = Logging(Redactor(), fd=writer, capacity=100)
    logs.start()
    began = time.monotonic()
    for number in range(5000):
        logger.info("line %d %s", number, "x" * 200)
    took = time.monotonic() - began
    logs.stop(timeout_s=0.05)
    assert took < 2
    assert logs.dropped > 1000
    os.close(reader)  # the writer's thread gets EPIPE and goes on to the end
    logs.stop(timeout_s=BOUND_S)
    os.close(writer)


def test_dropped_lines_are_reported_once_stderr_is_read_again() -> None:
    reader, writer = os.pipe()
    logs = Logging(Redactor(), fd=writer, capacity=100)
    logs.start()
    for number in range(3000):
        logger.info("line %d %s", number, "x" * 200)
    lost = logs.dropped
    assert lost > 1000
    with os.fdopen(reader) as pipe, ThreadPoolExecutor(1) as threads:
        reading = threads.submit(pipe.readlines)
        logs.stop(timeout_s=BOUND_S)
        os.close(writer)
        reports = [json.loads(line)["message"] for line in reading.result(BOUND_S) if "were dropped" in line]
    assert sum(int(report.split()[0]) for report in reports) == lost
