"""Which sandboxes a service has, and what it says if it has none."""

import logging
from pathlib import Path

import pytest
from agents.sandbox.manifest import Manifest

from app.domain.ids import TurnId
from app.errors import SandboxUnavailable
from app.sandbox import SandboxLimits, open_sandboxes
from app.sandbox.sandboxes import probe

pytestmark = pytest.mark.anyio


def stand_in(folder: Path, script: str) -> str:
    """A program in bubblewrap's place."""
    path = folder / "bwrap"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


async def test_bubblewrap_is_the_default_where_it_works(tmp_path: Path) -> None:
    async with open_sandboxes(tmp_path, None) as sandboxes:
        assert (sandboxes.backend, sandboxes.reason) == ("bubblewrap", None)


async def test_where_it_is_missing_sandboxes_are_off_and_say_why(
    tmp_path: Path, turn_id: TurnId, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_sandboxes(tmp_path, None, program=str(tmp_path / "bwrap")) as sandboxes:
        assert sandboxes.backend == "off"
        assert "is not installed" in caplog.text
        with pytest.raises(SandboxUnavailable, match="is not installed"):
            sandboxes.client(turn_id)


async def test_where_it_was_asked_for_and_does_not_work_the_start_fails(tmp_path: Path) -> None:
    program = stand_in(tmp_path, "echo 'bwrap: No permissions to create a new namespace' >&2; exit 1")
    with pytest.raises(SandboxUnavailable, match=r"No permissions to create a new namespace.*AppArmor"):
        async with open_sandboxes(tmp_path, "bubblewrap", program=program):
            pass


def test_a_program_that_confines_nothing_is_not_taken_for_it(tmp_path: Path) -> None:
    problem = probe(stand_in(tmp_path, "exit 0"), SandboxLimits())
    assert problem is not None
    assert "did not start" in problem


async def test_off_is_off(tmp_path: Path, turn_id: TurnId) -> None:
    async with open_sandboxes(tmp_path, "off") as sandboxes:
        with pytest.raises(SandboxUnavailable, match="TURNWIRE_SANDBOX=off"):
            async with sandboxes.session(turn_id, Manifest()):
                pass


async def test_the_unconfined_kind_warns_and_hands_on_no_secrets(
    tmp_path: Path, turn_id: TurnId, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-host")
    async with open_sandboxes(tmp_path / "workspaces", "unsafe_local") as sandboxes:
        assert caplog.records[0].levelno == logging.WARNING
        assert "Only for models and inputs that you trust" in caplog.text
        async with sandboxes.session(turn_id, Manifest()) as session:
            result = await session.exec("env; echo kept > file")
        assert b"sk-of-the-host" not in result.stdout
        async with sandboxes.session(turn_id, Manifest()) as session:
            assert (await session.exec("cat file")).stdout == b"kept\n"
        await sandboxes.remove(turn_id)
    assert list((tmp_path / "workspaces").iterdir()) == []
