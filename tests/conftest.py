"""What tests share: one scripted upstream and one service, each a process of its own."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.upstream.client import Scenario, UpstreamControl
from tests.upstream.process import upstream_process


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def upstream_origin() -> Iterator[str]:
    with upstream_process() as origin:
        yield origin


@pytest.fixture
async def upstream(upstream_origin: str) -> AsyncIterator[UpstreamControl]:
    control = UpstreamControl(upstream_origin)
    yield control
    await control.aclose()


@pytest.fixture
def scenario(upstream: UpstreamControl) -> Scenario:
    """A model name of this test's own, with its scripts, gates and requests."""
    return upstream.scenario()
