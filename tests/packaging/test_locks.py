"""The locked files hold everything that is declared, by hash, and say nothing of where it comes from."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCKS = ("requirements.lock", "requirements-build.lock", "requirements-dev.lock")
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)((?:.*\\\n\s+--hash=sha256:[0-9a-f]{64})+)", re.M)


def pins(lock: str) -> dict[str, str]:
    return {canonicalize_name(name): version for name, version, _ in PIN.findall((ROOT / lock).read_text())}


def declared() -> list[tuple[str, str]]:
    """Each requirement of pyproject.toml with the lock that must hold it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [(r, "requirements.lock") for r in project["project"]["dependencies"]]
    extras = project["project"]["optional-dependencies"]
    for extra in (extras["local"], extras["otlp"]):
        wanted += [(r, "requirements.lock") for r in extra]
    groups = {"model": "requirements.lock", "build": "requirements-build.lock", "dev": "requirements-dev.lock"}
    return wanted + [(r, lock) for group, lock in groups.items() for r in project["dependency-groups"][group]]


@pytest.mark.parametrize("lock", LOCKS)
def test_every_line_of_a_lock_is_a_pin_with_hashes(lock: str) -> None:
    text = (ROOT / lock).read_text()
    starts = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
    assert len(starts) == len(pins(lock)) > 0


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_address(lock: str) -> None:
    text = (ROOT / lock).read_text()
    assert not re.search(r"://|--index|--extra-index|--find-links|\bfile:", text)


@pytest.mark.parametrize(("requirement", "lock"), declared())
def test_what_is_declared_is_locked_in_a_version_that_fits(requirement: str, lock: str) -> None:
    wanted = Requirement(requirement)
    locked = pins(lock)
    assert canonicalize_name(wanted.name) in locked, f"{lock} lacks {wanted.name}: run `make lock`"
    assert wanted.specifier.contains(locked[canonicalize_name(wanted.name)])


def test_what_two_locks_hold_they_hold_in_one_version() -> None:
    first, *others = (pins(lock) for lock in LOCKS)
    for other in others:
        assert {name: first[name] for name in first.keys() & other} == {
            name: other[name] for name in first.keys() & other
        }
