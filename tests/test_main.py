"""`python -m app`, as a process of its own, as far as it goes without serving."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from asyncio.subprocess import Process
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from app.keys import load_keys, secrets
from app.main import create_app
from app.settings import Settings, SettingsError
from tests.bounds import PROCESS_S

ROOT = Path(__file__).parents[1]


def run(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(
        [sys.executable, "-m", "app", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PROCESS_S,
    )


def test_it_tells_its_options_and_its_version() -> None:
    told = run("--help")
    assert (told.returncode, "--reload" in told.stdout) == (0, True)
    assert run("--version").stdout.strip()


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"TURNWIRE_PROT": "8000"}, "TURNWIRE_PROT"),
        ({"TURNWIRE_PORT": "nine"}, "TURNWIRE_PORT"),
        ({"TURNWIRE_API_KEYS": "no-colon-secret"}, "TURNWIRE_API_KEYS"),
        ({"TURNWIRE_HOST": "0.0.0.0"}, "TURNWIRE_ALLOW_ANONYMOUS"),
    ],
)
def test_a_wrong_setting_is_named_and_nothing_is_started(
    tmp_path: Path, variables: dict[str, str], named: str
) -> None:
    refused = run(TURNWIRE_DATA_DIR=str(tmp_path / "data"), **({"TURNWIRE_PORT": "0"} | variables))
    assert refused.returncode == 2
    assert named in refused.stderr
    assert "Traceback" not in refused.stderr
    assert "secret" not in refused.stderr
    assert not (tmp_path / "data").exists()


def test_a_port_that_is_taken_is_one_clear_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        refused = run(TURNWIRE_PORT=port, TURNWIRE_DATA_DIR=str(tmp_path))
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"turnwire: cannot listen on 127.0.0.1 port {port}: ")
    assert refused.stderr.count("\n") == 1


@pytest.mark.anyio
async def test_while_developing_a_changed_file_restarts_it(tmp_path: Path) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(map(str, [elsewhere, tmp_path / "missing"])),
        "TURNWIRE_PORT": "0",
        "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
    }
    for folder in here, elsewhere:
        folder.mkdir()
        (folder / "mine.py").write_text("changed = False")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "app", "--reload"),
        env=environment,
        cwd=here,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        with anyio.fail_after(PROCESS_S):
            first = await started(process)
            for folder in here, elsewhere:
                (folder / "mine.py").write_text("changed = True")
                assert await started(process) == first
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def started(process: Process) -> int:
    """The port of the next service that the process starts."""
    assert process.stderr is not None
    while line := await process.stderr.readline():
        if b"service.started" in line:
            return int(json.loads(line)["port"])
    raise AssertionError("the process ended without having started")


def test_every_key_is_a_secret_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("c:three\n")
    settings = Settings(api_keys="a:one,b:two:2", api_keys_file=tmp_path / "keys", database_url="sqlite:///x")
    assert {"one", "two:2", "three", "sqlite:///x"} <= set(secrets(settings))


def test_the_app_is_refused_without_usable_keys() -> None:
    with pytest.raises(SettingsError, match="TURNWIRE_API_KEYS: pair 1"):
        create_app(Settings(api_keys=":x"))
    assert load_keys(Settings()) is None
