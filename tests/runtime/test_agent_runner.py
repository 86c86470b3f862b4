"""What nested runs get of ours, and that the SDK still lets us be its default runner."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from agents import Agent, Model, ModelProvider, ModelResponse, RunConfig, Runner, Usage
from agents.run import AgentRunner, get_default_agent_runner
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

from app.runtime.agent_runner import TurnAgentRunner, installed
from app.runtime.tracing import Tracing

pytestmark = pytest.mark.anyio


class Named(Model):
    """Answers with its own name."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        text = ResponseOutputText(type="output_text", text=self.name, annotations=[])
        message = ResponseOutputMessage(
            id="msg_1", type="message", role="assistant", status="completed", content=[text]
        )
        return ModelResponse([message], Usage(), None)

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


class Provider(ModelProvider):
    def __init__(self, name: str) -> None:
        self.name = name

    def get_model(self, model_name: str | None) -> Model:
        return Named(f"{self.name}:{model_name}")


def runner() -> TurnAgentRunner:
    return TurnAgentRunner(Provider("ours"), lambda agent: None, tracing=Tracing())


def test_it_is_the_default_for_as_long_as_the_service_runs() -> None:
    before = get_default_agent_runner()
    with installed(own := runner()):
        assert get_default_agent_runner() is own
        assert isinstance(own, AgentRunner)
    assert get_default_agent_runner() is before


async def test_outside_of_a_turn_it_is_the_sdks_own() -> None:
    config = RunConfig(model_provider=Provider("theirs"), tracing_disabled=True)
    with installed(runner()):
        result = await Runner.run(Agent("a", model="m"), "Go.", run_config=config)
    assert result.final_output == "theirs:m"


@pytest.mark.parametrize(
    ("given", "turn", "model"),
    [
        (None, None, None),
        (RunConfig(), RunConfig(model="wanted"), "wanted"),
        (RunConfig(model="own"), RunConfig(model="wanted"), "own"),
    ],
)
def test_a_nested_run_is_on_our_provider_and_by_the_callers_model_unless_it_names_one(
    given: RunConfig | None, turn: RunConfig | None, model: str | None
) -> None:
    own = runner()
    config = own._ours(given, turn)
    assert (config.model_provider, config.model) == (own._models, model)
