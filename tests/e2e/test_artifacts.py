"""Files that turns produce, over HTTP."""

import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.bounds import until
from tests.service.client import JsonObject, TurnwireClient
from tests.service.process import ServiceProcess
from tests.upstream.client import Scenario

pytestmark = pytest.mark.anyio

BYTES = bytes(range(256)) * 3000
FILING = {
    "TURNWIRE_AGENTS": "tests.service.filing:filer",
    "TURNWIRE_API_KEYS": "desk:desk-key-1234567890,other:other-key-1234567890",
    "TURNWIRE_MAX_ARTIFACT_BYTES": 1_000_000,
    "TURNWIRE_MAX_ARTIFACTS": 3,
    "TURNWIRE_MAX_ARTIFACTS_BYTES": 1_500_000,
    "TURNWIRE_OVERRIDES": "agent,model",
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, upstream_origin: str) -> Iterator[ServiceProcess]:
    with ServiceProcess(tmp_path_factory.mktemp("filing"), upstream_origin, **FILING) as service:
        yield service
        service.check_log()


@asynccontextmanager
async def client_of(
    service: ServiceProcess, scenario: Scenario, caller: str = "desk", **headers: str
) -> AsyncIterator[TurnwireClient]:
    client = TurnwireClient(service.base_url, model=scenario.model)
    client.http.headers.update({"authorization": f"Bearer {caller}-key-1234567890", **headers})
    try:
        yield client
    finally:
        await client.aclose()


@pytest.fixture
async def client(service: ServiceProcess, scenario: Scenario) -> AsyncIterator[TurnwireClient]:
    async with client_of(service, scenario) as client:
        yield client


def files(*given: tuple[str, bytes] | tuple[str, bytes, str]) -> str:
    entries = ((name, base64.b64encode(content).decode(), media) for name, content, *media in given)
    return json.dumps([[name, text, *(media or (None,))] for name, text, media in entries])


async def filed(client: TurnwireClient, *given: tuple[str, bytes] | tuple[str, bytes, str]) -> JsonObject:
    turn = await client.run(files(*given), agent="filer")
    assert turn["status"] == "completed", turn["error"]
    return turn


async def listed(client: TurnwireClient, turn: JsonObject) -> list[JsonObject]:
    response = await client.http.get(f"/v1/turns/{turn['id']}/artifacts")
    assert response.status_code == 200
    page = response.json()
    assert (page["has_more"], page["next"]) == (False, None)
    found: list[JsonObject] = page["data"]
    return found


async def read(client: TurnwireClient, url: str) -> httpx.Response:
    response = await client.http.get(url)
    assert response.status_code == 200, response.text
    return response


def kept_files(service: ServiceProcess) -> list[str]:
    folder = service.folder / "artifacts"
    return sorted(path.name for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []


async def test_files_are_listed_as_announced_and_their_bytes_are_unchanged(client: TurnwireClient) -> None:
    turn = await filed(client, ("b.bin", BYTES), ("a.md", b"# Findings\r\n"), ("empty.txt", b""))
    announced = [f.data for f in await client.log(turn["id"]) if f.type == "artifact.created"]
    found = await listed(client, turn)
    assert [one["name"] for one in found] == ["b.bin", "a.md", "empty.txt"]
    assert [{name: event[name] for name in found[0]} for event in announced] == found == turn["output"]
    assert [(await read(client, one["url"])).content for one in found] == [BYTES, b"# Findings\r\n", b""]
    assert [one["size"] for one in found] == [len(BYTES), 12, 0]


async def test_a_file_is_never_shown_by_a_browser_only_saved(client: TurnwireClient) -> None:
    turn = await filed(client, ("page.html", b"<script>alert(1)</script>"), ("x", b"<svg/>", "image/svg+xml"))
    page, image = [await read(client, one["url"]) for one in await listed(client, turn)]
    for response in (page, image):
        assert response.headers["content-disposition"].startswith("attachment;")
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["content-security-policy"] == "sandbox"
    assert page.headers["content-disposition"] == "attachment; filename*=UTF-8''page.html"
    assert image.headers["content-type"] == "image/svg+xml"


async def test_head_says_what_get_would(client: TurnwireClient) -> None:
    turn = await filed(client, ("b.bin", BYTES))
    (one,) = await listed(client, turn)
    whole, head = await read(client, one["url"]), await client.http.head(one["url"])
    assert (head.status_code, head.content) == (200, b"")
    names = ("content-length", "content-type", "content-disposition", "content-security-policy")
    assert [head.headers[name] for name in names] == [whole.headers[name] for name in names]


@pytest.mark.parametrize(
    "name", ['a"b; filename=c.exe', "Ünï cöde ☃.md", "%2e%2e%2fpasswd", "con", "-rf", "a" * 255, "'; --"]
)
async def test_names_are_kept_whatever_they_say(
    client: TurnwireClient, service: ServiceProcess, name: str
) -> None:
    turn = await filed(client, (name, b"kept"))
    (one,) = await listed(client, turn)
    assert one["name"] == name
    response = await read(client, one["url"])
    assert response.content == b"kept"
    assert response.headers["content-disposition"].isascii()
    assert not [kept for kept in kept_files(service) if name in kept]


@pytest.mark.parametrize(
    "name", ["../../escaped", "/etc/escaped", "..", "", "a\nb", "a\u202eb", "a" * 256, "a\\b"]
)
async def test_names_that_are_paths_or_cannot_be_seen_are_refused(client: TurnwireClient, name: str) -> None:
    turn = await filed(client, (name, b"no"))
    assert list(turn["output"][0]) == ["refused"]
    assert await listed(client, turn) == []


async def test_files_beyond_the_limits_are_refused_and_leave_nothing(
    client: TurnwireClient, service: ServiceProcess
) -> None:
    before = len(kept_files(service))
    turn = await filed(client, ("big", b"x" * 1_000_001), ("one", BYTES), ("two", BYTES))
    assert [next(iter(one)) for one in turn["output"]] == ["refused", "artifact_id", "refused"]
    many = await filed(client, *((f"{number}", b"x") for number in range(4)))
    assert "refused" in many["output"][3]
    assert len(kept_files(service)) == before + 1 + 3


async def test_nobody_else_finds_a_file(
    client: TurnwireClient, service: ServiceProcess, scenario: Scenario
) -> None:
    turn = await filed(client, ("a.txt", b"mine"))
    another = await filed(client, ("b.txt", b"mine too"))
    (one,) = await listed(client, turn)
    paths = [f"/v1/turns/{turn['id']}/artifacts", one["url"]]
    for caller, headers in (("other", {}), ("desk", {"turnwire-user": "u_1"})):
        async with client_of(service, scenario, caller, **headers) as stranger:
            assert [(await stranger.http.get(path)).status_code for path in paths] == [404, 404]
    assert (
        await client.http.get(f"/v1/turns/{another['id']}/artifacts/{one['artifact_id']}")
    ).status_code == 404
    assert (
        await client.http.get(f"/v1/turns/{turn['id']}/artifacts/..%2f..%2fturnwire.sqlite3")
    ).status_code == 404
    async with client_of(service, scenario) as keyless:
        del keyless.http.headers["authorization"]
        assert (await keyless.http.get(one["url"])).status_code == 401


async def test_files_go_with_their_conversation(client: TurnwireClient, service: ServiceProcess) -> None:
    before = kept_files(service)
    turn = await filed(client, ("a.txt", b"gone"), ("b.txt", b"gone"))
    (url, _) = [one["url"] for one in await listed(client, turn)]
    assert len(kept_files(service)) == len(before) + 2
    assert (await client.http.delete(f"/v1/conversations/{turn['conversation_id']}")).status_code == 204
    assert (await client.http.get(url)).status_code == 404
    await until(lambda: kept_files(service) == before)


async def test_files_outlive_a_crash_and_what_belongs_to_nobody_is_swept(
    tmp_path: Path, upstream_origin: str, scenario: Scenario
) -> None:
    settings: dict[str, Any] = FILING | {"TURNWIRE_API_KEYS": None}
    with ServiceProcess(tmp_path, upstream_origin, **settings) as service:
        async with client_of(service, scenario) as client:
            turn = await filed(client, ("b.bin", BYTES))
        service.kill()
        (kept,) = kept_files(service)
        for stray in ("art_0123456789abcdef01234567", "art_half.part"):
            (service.folder / "artifacts" / stray).write_bytes(b"of a crash")
        service.start()
        service.wait_ready()
        async with client_of(service, scenario) as client:
            (one,) = await listed(client, turn)
            assert (await read(client, one["url"])).content == BYTES
        await until(lambda: kept_files(service) == [kept])
