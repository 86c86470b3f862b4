from collections.abc import AsyncIterator

import httpx
import pytest

from tests.api.fake_turns import FakeTurns
from tests.api.serving import app_of
from tests.bridge import bridged_client


@pytest.fixture
async def turns() -> FakeTurns:
    return FakeTurns()


@pytest.fixture
async def http(turns: FakeTurns) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the API in this process, without keys."""
    async with bridged_client(app_of(turns)) as client:
        yield client
