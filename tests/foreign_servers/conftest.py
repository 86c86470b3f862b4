"""One of each server, and the service on it by either wire."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest

from tests.foreign_servers.servers import aimock_server, llmock_server
from tests.service.client import TurnwireClient
from tests.service.process import ServiceProcess

LIMITS = {"TURNWIRE_UPSTREAM_IDLE_S": 2, "TURNWIRE_UPSTREAM_RETRIES": 2}


@pytest.fixture(scope="session")
def llmock() -> Iterator[str]:
    with llmock_server() as origin:
        yield origin


@pytest.fixture(scope="session")
def aimock() -> Iterator[str]:
    with aimock_server() as origin:
        yield origin


@contextmanager
def service_on(factory: pytest.TempPathFactory, origin: str, api: str) -> Iterator[ServiceProcess]:
    with ServiceProcess(factory.mktemp(api), origin, TURNWIRE_MODEL_API=api, **LIMITS) as service:
        yield service
        service.check_log()


@pytest.fixture(scope="session", params=["chat_completions", "responses"])
def llmock_service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, llmock: str
) -> Iterator[ServiceProcess]:
    with service_on(tmp_path_factory, llmock, request.param) as service:
        yield service


@pytest.fixture(scope="session", params=["chat_completions", "responses"])
def aimock_service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, aimock: str
) -> Iterator[ServiceProcess]:
    with service_on(tmp_path_factory, aimock, request.param) as service:
        yield service


@pytest.fixture
async def on_llmock(llmock_service: ServiceProcess) -> AsyncIterator[TurnwireClient]:
    client = TurnwireClient(llmock_service.base_url)
    yield client
    await client.aclose()


@pytest.fixture
async def on_aimock(aimock_service: ServiceProcess) -> AsyncIterator[TurnwireClient]:
    client = TurnwireClient(aimock_service.base_url)
    yield client
    await client.aclose()
