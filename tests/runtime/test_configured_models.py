"""From settings to upstreams: each is built once, closed once, and never in place of another."""

import json
from contextlib import AsyncExitStack

import pytest

from app.runtime.configured_models import ModelConfiguration, open_models
from app.runtime.credentials.environment import CredentialsError, EnvironmentCredentials
from app.runtime.failures import UpstreamFailure
from app.runtime.model_list import parse
from app.runtime.models.chat_completions import ChatDecoder
from app.runtime.models.null_observer import NullObserver
from app.runtime.models.transport import Outgoing
from app.runtime.providers import EmbeddedModel

pytestmark = pytest.mark.anyio
URL = "http://127.0.0.1:9/v1"


async def never() -> tuple[str, str]:
    raise AssertionError("nobody asked for it")


EMBEDDED = EmbeddedModel("tiny", never)


async def test_models_of_one_place_with_one_key_share_an_upstream() -> None:
    entries = {
        "a": {"url": URL, "api_key": "k"},
        "b": {"url": URL, "api_key": "k", "context_window": 9},
        "c": {"url": URL, "api_key": "other"},
        "d": {"url": URL, "api_key": "k", "api": "responses"},
    }
    async with AsyncExitStack() as stack:
        models = await open_models(ModelConfiguration(listed=parse(json.dumps(entries), {})), stack)
        assert len(models.upstreams) == 3


async def test_closing_closes_every_upstream() -> None:
    async with AsyncExitStack() as stack:
        configuration = ModelConfiguration(credentials=EnvironmentCredentials(openai_url=URL))
        (upstream,) = (await open_models(configuration, stack)).upstreams
    decoder = ChatDecoder(NullObserver(set()), upstream="x", max_item_size=1)
    with pytest.raises(UpstreamFailure, match="shutting down"):
        await upstream.exchange(Outgoing("/chat/completions", b"{}"), decoder)


@pytest.mark.parametrize("model", [None, "tiny"])
async def test_the_embedded_model_is_for_who_configured_nothing(model: str | None) -> None:
    async with AsyncExitStack() as stack:
        models = await open_models(ModelConfiguration(default_model=model, embedded=EMBEDDED), stack)
        assert (models.default_model, models.serves("tiny"), models.serves("other")) == ("tiny", True, False)


@pytest.mark.parametrize(
    "configuration",
    [
        ModelConfiguration(default_model="other", embedded=EMBEDDED),
        ModelConfiguration(
            default_model="tiny", embedded=EMBEDDED, listed=parse('{"a": {"url": "http://x"}}', {})
        ),
    ],
)
async def test_it_never_stands_in_for_another_name(configuration: ModelConfiguration) -> None:
    async with AsyncExitStack() as stack:
        with pytest.raises(CredentialsError, match="no configured upstream serves it"):
            await open_models(configuration, stack)


async def test_an_entry_without_a_url_needs_an_upstream_of_the_environment() -> None:
    listed = parse('{"a": {"context_window": 9}}', {})
    async with AsyncExitStack() as stack:
        with pytest.raises(CredentialsError, match="TURNWIRE_MODELS: a: it has no url"):
            await open_models(ModelConfiguration(listed=listed), stack)
        credentials = EnvironmentCredentials(openai_url=URL)
        models = await open_models(ModelConfiguration(credentials, listed), stack)
        assert models.context_window("a") == 9
