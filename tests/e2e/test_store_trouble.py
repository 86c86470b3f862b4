"""The disk refuses: nothing that was not stored is shown, and the turn ends once the disk is back."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import httpx
import pytest

from tests.bounds import BOUND_S
from tests.e2e.checks import check_log, the_next_turn_is_valid
from tests.service.client import TurnwireClient
from tests.service.process import ServiceProcess
from tests.service.shapes import shapes
from tests.upstream.client import Scenario

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def own_service(tmp_path_factory: pytest.TempPathFactory, upstream_origin: str) -> Iterator[ServiceProcess]:
    with ServiceProcess(tmp_path_factory.mktemp("full"), upstream_origin) as service:
        yield service


@contextmanager
def full_disk(service: ServiceProcess) -> Iterator[None]:
    """The kernel refuses to let any file of the service grow."""
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    resource.prlimit(service.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.prlimit(service.pid, resource.RLIMIT_FSIZE, unlimited)


async def test_a_turn_that_cannot_be_stored_is_cut_off_and_ended_when_the_disk_is_back(
    own_service: ServiceProcess, scenario: Scenario
) -> None:
    client = TurnwireClient(own_service.base_url, model=scenario.model)
    await scenario.script({"text": "one two three", "hold": {"text:1": scenario.gate("text")}})
    turn = await client.start("hello")
    await scenario.held("text")
    async with client.events(turn["id"]) as stream:
        await stream.until_text("one ")
        with full_disk(own_service):
            await scenario.release("text")
            with pytest.raises(httpx.RemoteProtocolError), anyio.fail_after(BOUND_S):
                await stream.until("turn.completed")
            refused = await client.post("again")
            assert (refused.status_code, refused.json()["code"]) == (503, "store_unavailable")
            assert (await client.http.get("/readyz")).status_code == 503
            assert (await client.http.get("/healthz")).status_code == 200
    own_service.wait_logged("turn.ended")
    ended = await client.turn(turn["id"])
    assert (ended["status"], ended["error"]["code"]) == ("failed", "store_unavailable")
    check_log(await client.log(turn["id"]), ended)
    items = shapes(await client.items(turn["conversation_id"]))
    assert [role for role, _ in items] == ["user", "assistant"]
    assert items[1][1].startswith(stream.text), "what was seen is kept"
    assert (await client.http.get("/readyz")).status_code == 200
    await the_next_turn_is_valid(client, scenario, turn["conversation_id"], items)
    await client.aclose()
