"""What tests share: one scripted upstream and one service, each a process of its own."""

from collections.abc import AsyncIterator, Iterator

import pytest

# Before these are imported: their assertions shall say as much as a test's.
pytest.register_assert_rewrite("tests.e2e", "tests.service", "tests.upstream")

from tests.service.client import TurnwireClient  # noqa: E402
from tests.service.process import ServiceProcess  # noqa: E402
from tests.upstream.client import Scenario, UpstreamControl  # noqa: E402
from tests.upstream.process import upstream_process  # noqa: E402

SWIFT = {"TURNWIRE_HEARTBEAT_S": 1, "TURNWIRE_DISCONNECT_GRACE_S": 0.3}
"""Settings of the shared service, so that tests of what it does after a while need not wait long."""
HASTY = {
    "TURNWIRE_UPSTREAM_IDLE_S": 0.5,
    "TURNWIRE_UPSTREAM_FIRST_BYTE_S": 0.5,
    "TURNWIRE_UPSTREAM_RETRIES": 0,
    "TURNWIRE_QUEUE_LIMIT": 1,
    "TURNWIRE_CANCEL_WAIT_S": 0.3,
    "TURNWIRE_MAX_STEPS": 3,
    "TURNWIRE_MAX_BODY_BYTES": 4096,
    "TURNWIRE_LISTENER_STALL_S": 0.5,
    "TURNWIRE_MAX_TURNS": 4,
}
"""Limits that a test can hit."""


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


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory, upstream_origin: str) -> Iterator[ServiceProcess]:
    """The service on a Chat Completions upstream, shared by all tests that do not stop it."""
    folder = tmp_path_factory.mktemp("service")
    with ServiceProcess(folder, upstream_origin, **SWIFT) as service:
        yield service
        service.check_log()


@pytest.fixture(scope="session")
def responses_service(
    tmp_path_factory: pytest.TempPathFactory, upstream_origin: str
) -> Iterator[ServiceProcess]:
    """The same on a Responses upstream."""
    folder = tmp_path_factory.mktemp("responses-service")
    with ServiceProcess(folder, upstream_origin, TURNWIRE_MODEL_API="responses", **SWIFT) as service:
        yield service
        service.check_log()


@pytest.fixture(scope="session")
def hasty_service(tmp_path_factory: pytest.TempPathFactory, upstream_origin: str) -> Iterator[ServiceProcess]:
    """The service with limits that a test can hit."""
    folder = tmp_path_factory.mktemp("hasty-service")
    with ServiceProcess(folder, upstream_origin, **HASTY) as service:
        yield service
        service.check_log()


@pytest.fixture
async def hasty_client(hasty_service: ServiceProcess, scenario: Scenario) -> AsyncIterator[TurnwireClient]:
    client = TurnwireClient(hasty_service.base_url, model=scenario.model)
    yield client
    await client.aclose()


@pytest.fixture
async def client(service: ServiceProcess, scenario: Scenario) -> AsyncIterator[TurnwireClient]:
    """A client of the shared service that sends the scenario's model with each turn."""
    client = TurnwireClient(service.base_url, model=scenario.model)
    yield client
    await client.aclose()


@pytest.fixture(params=["chat_completions", "responses"])
async def either_client(request: pytest.FixtureRequest, scenario: Scenario) -> AsyncIterator[TurnwireClient]:
    """The same test twice: on a Chat Completions upstream, and on a Responses one."""
    name = "service" if request.param == "chat_completions" else "responses_service"
    service: ServiceProcess = request.getfixturevalue(name)
    client = TurnwireClient(service.base_url, model=scenario.model)
    yield client
    await client.aclose()
