"""The Dockerfile's steps are carried out in an empty folder, and the service is started from it."""

import http.client
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.bounds import BOUND_S, PROCESS_S
from tests.packaging.dockerfile import ROOT, Prefix, Stage, stages
from tests.ports import unused_port

BASE = stages()["base"]


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Prefix:
    prefix = Prefix(tmp_path_factory.mktemp("image"))
    prefix.carry_out(stages()["build"])
    prefix.carry_out(BASE)
    return prefix


@contextmanager
def container(prefix: Prefix, port: int, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """The image's command with the image's environment, on a port of its own, once it answers."""
    environment = prefix.environment(BASE, TURNWIRE_PORT=str(port), TURNWIRE_ALLOW_ANONYMOUS="true", **env)
    command = [str(prefix.root / "opt/turnwire/bin" / BASE.command("CMD")[0])]
    log = prefix.root / "stderr"
    with (
        log.open("wb") as stderr,
        subprocess.Popen(command, env=environment, cwd=prefix.moved("/agents"), stderr=stderr) as service,
    ):
        try:
            deadline = time.monotonic() + PROCESS_S
            while not answers(port):
                assert time.monotonic() < deadline, log.read_text()
                with suppress(subprocess.TimeoutExpired):
                    pytest.fail(f"ended with {service.wait(0.1)}: {log.read_text()}")
            yield service
        finally:
            service.kill()


def answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=BOUND_S)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def health_check(prefix: Prefix, port: int) -> int:
    command = [word.replace("8000", str(port)) for word in BASE.command("HEALTHCHECK")]
    return subprocess.run(
        command, env=prefix.environment(BASE), timeout=PROCESS_S, check=False, stderr=subprocess.DEVNULL
    ).returncode


def test_the_image_serves_and_its_health_check_tells(prefix: Prefix) -> None:
    port = unused_port()
    assert health_check(prefix, port) != 0
    with container(prefix, port) as service:
        assert health_check(prefix, port) == 0
        assert list((prefix.root / "data").iterdir())
        service.send_signal(signal.SIGTERM)
        assert service.wait(PROCESS_S) == 0


def test_the_image_finds_the_embedded_model_and_its_engine(prefix: Prefix) -> None:
    code = "from app.runtime.local_model import find_model; import xllamacpp; print(find_model())"
    found = run_in(prefix, code)
    assert found.returncode == 0, found.stderr
    assert Path(found.stdout.strip()).is_relative_to(prefix.root)


def test_without_keys_and_without_consent_the_image_does_not_serve_everybody(prefix: Prefix) -> None:
    command = [str(prefix.root / "opt/turnwire/bin/turnwire")]
    refused = subprocess.run(
        command, env=prefix.environment(BASE), capture_output=True, text=True, timeout=PROCESS_S, check=False
    )
    assert refused.returncode != 0
    assert "TURNWIRE_ALLOW_ANONYMOUS" in refused.stderr


def test_the_slim_image_serves_without_the_model(prefix: Prefix) -> None:
    prefix.carry_out(stages()["build-slim"])
    missing = run_in(prefix, "from app.runtime.local_model import find_model; find_model()")
    assert "LocalModelUnavailable" in missing.stderr
    port = unused_port()
    with container(prefix, port, OPENAI_BASE_URL="http://127.0.0.1:9/v1"):
        assert health_check(prefix, port) == 0


def run_in(prefix: Prefix, code: str) -> subprocess.CompletedProcess[str]:
    python = str(prefix.root / "opt/turnwire/bin/python")
    env = prefix.environment(BASE)
    return subprocess.run(
        [python, "-c", code], env=env, capture_output=True, text=True, timeout=PROCESS_S, check=False
    )


def test_the_images_run_as_a_user_without_rights_and_allow_nobody_by_default() -> None:
    assert BASE.all("USER") == ["10001:10001"]
    assert BASE.all("VOLUME") == ["/data"]
    assert BASE.environment["TURNWIRE_HOST"] == "0.0.0.0"
    assert "TURNWIRE_ALLOW_ANONYMOUS" not in BASE.environment
    assert not any(key in (ROOT / "Dockerfile").read_text() for key in ("OPENAI_API_KEY=", "API_KEYS="))


@pytest.mark.parametrize("name", ["slim", "full"])
def test_each_tag_is_the_same_base_with_its_own_packages(name: str) -> None:
    stage: Stage = stages()[name]
    assert stage.base == "base"
    assert [step.instruction for step in stage.steps] == ["COPY"]
    assert list(stages())[-1] == "full"


def test_the_image_has_what_confines_commands_of_sandbox_agents() -> None:
    assert BASE.base == "system"
    assert any("install" in run and " bubblewrap" in run for run in stages()["system"].all("RUN"))
    compose = (ROOT / "docker-compose.yml").read_text()
    for option in ("seccomp=unconfined", "apparmor=unconfined", "systempaths=unconfined"):
        assert f"# - {option}" in compose
        assert option in (ROOT / "docs/sandboxes.md").read_text()


def test_every_file_that_is_copied_passes_the_ignore_file() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {word for text in stages()["build"].all("COPY") for word in text.split()[:-1]}
    assert copied == allowed


def test_compose_publishes_on_loopback_alone() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    lines = [line.split(" #")[0].strip() for line in text.splitlines() if not line.strip().startswith("#")]
    assert re.findall(r'"([\d.:]+:8000)"', "\n".join(lines)) == ["127.0.0.1:8000:8000"]
    assert 'TURNWIRE_ALLOW_ANONYMOUS: "true"' in lines
    assert "stop_grace_period: 20s" in lines
    assert "read_only: true" in lines
