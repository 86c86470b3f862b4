"""One model call against a loopback server, watched by a recorder."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agents import ModelSettings, ModelTracing

from app.runtime.models.model import UpstreamModel
from app.runtime.models.transport import FixedEndpoint, Upstream, UpstreamLimits, Wire
from app.runtime.observer import current_scope
from tests.runtime.models.loopback import Answer, Loopback
from tests.runtime.models.recorder import RecordingScope

QUICK = UpstreamLimits(connect_s=2, first_byte_s=5, idle_s=5, retries=0)
"""No retries, and no test waits for long."""


@asynccontextmanager
async def upstream_of(
    server: Loopback, wire: Wire = "chat_completions", limits: UpstreamLimits = QUICK, **options: Any
) -> AsyncIterator[Upstream]:
    endpoint = options.pop("endpoint", None) or FixedEndpoint(server.url, "key-FOR-TESTS-0000")
    upstream = Upstream("loop", wire, endpoint, limits=limits, trust_env=False, **options)
    try:
        yield upstream
    finally:
        await upstream.aclose()


@asynccontextmanager
async def recording(deadline: float = float("inf")) -> AsyncIterator[RecordingScope]:
    scope = RecordingScope(deadline)
    token = current_scope.set(scope)
    try:
        yield scope
    finally:
        current_scope.reset(token)


async def ask(model: UpstreamModel, input: Any = "Say hello.", **settings: Any) -> None:
    """Run one model call to its end."""
    await model.get_response(
        settings.pop("instructions", None),
        input,
        settings.pop("settings", ModelSettings()),
        settings.pop("tools", []),
        settings.pop("output_schema", None),
        settings.pop("handoffs", []),
        ModelTracing.DISABLED,
        **settings,
    )


async def exchange(
    *answers: Answer,
    wire: Wire = "chat_completions",
    limits: UpstreamLimits = QUICK,
    input: Any = "Say hello.",
    deadline: float = float("inf"),
    **options: Any,
) -> tuple[Loopback, RecordingScope, BaseException | None]:
    """One model call against `answers`: the server, the recording, and what the call raised."""
    failure: Exception | None = None
    async with (
        Loopback(*answers) as server,
        upstream_of(server, wire, limits, **options) as upstream,
        recording(deadline) as scope,
    ):
        try:
            await ask(UpstreamModel(upstream, "m"), input)
        except Exception as error:  # noqa: BLE001 - what it is, is what the tests look at
            failure = error
    return server, scope, failure
