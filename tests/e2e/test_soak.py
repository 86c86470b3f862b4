"""The short form of the soak: everything at once for a while, and nothing left behind."""

import random
from pathlib import Path

import pytest

from bench.soak import soak

pytestmark = pytest.mark.anyio
SECONDS = 16


async def test_a_while_of_everything_leaves_nothing_behind(tmp_path: Path, upstream_origin: str) -> None:
    random.seed(7)
    seen = await soak(SECONDS, tmp_path, upstream_origin)
    assert seen["turn.completed"]
    assert seen["turn.failed"]
    assert seen["turn.cancelled"]
    assert seen["dropped"]
