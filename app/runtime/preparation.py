"""From a request to what runs: which agent, which model, which input, with which overrides."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from agents import Agent, GuardrailFunctionOutput, InputGuardrail, Model, ModelSettings, RunContextWrapper, Tool
from openai.types.shared import Reasoning

from app.domain.conversation import NewItem
from app.domain.json_types import JsonObject
from app.domain.ports import Prepared
from app.domain.turn import TurnRequest
from app.errors import AgentNotFound, InvalidRequest, ModelNotFound
from app.runtime.agent_graph import names_in_use, works_in_sandbox
from app.runtime.agent_loading import Runnable
from app.runtime.containment import uncancelled
from app.runtime.inputs import normalise
from app.runtime.json_schemas import check_value, checked_schema
from app.runtime.observer import current_scope
from app.runtime.output_schemas import CallerSchema, ForgivingSchema
from app.runtime.pauses import client_tool
from app.runtime.providers import Providers
from app.runtime.registry import Registry
from app.runtime.scope import RunFrame
from app.runtime.workflow import Workflow

LAST = "@last"


class Preparation:
    """Checks requests against the registered agents and models, and builds the agent that a turn runs."""

    def __init__(self, registry: Registry, models: Providers, check_sandbox: Callable[[], None]) -> None:
        """`check_sandbox` raises SandboxUnavailable where the service has none."""
        self._registry = registry
        self.models = models
        self._check_sandbox = check_sandbox

    def prepare(
        self, request: TurnRequest, *, agent: str | None = None, last_agent: str | None = None
    ) -> Prepared:
        """See `ports.Runtime.prepare`."""
        name = request.agent or agent or self._registry.default_name
        if name == LAST:
            name = last_agent or agent or self._registry.default_name
        elif request.agent is not None and not self._registry.is_registered(name):
            raise AgentNotFound(
                f"There is no agent {name!r}.", errors=[{"loc": ["body", "agent"], "message": "no such agent"}]
            )
        chosen = self._registry.get(name)
        if isinstance(chosen, Workflow):
            _check_workflow_overrides(request, chosen)
        if chosen.needs_sandbox if isinstance(chosen, Workflow) else works_in_sandbox(chosen):
            self._check_sandbox()
        model = self._model(request, chosen)
        self._check_client_tools(request, chosen)
        if request.output_schema is not None:
            checked_schema(request.output_schema, ["body", "output_schema"])
        normalised = normalise(request.input, wire=self.models.wire_of(model))
        return Prepared(chosen.name, model, normalised.items, normalised.transient)

    def seed_items(self, items: Sequence[JsonObject]) -> tuple[NewItem, ...]:
        if not items:
            return ()
        return normalise(list(items), wire=self.models.wire_of(None), seeding=True).items

    def check_arguments(self, agent: str, tool: str, arguments: JsonObject, loc: list[str | int]) -> None:
        """Against the schema of the tool, wherever in the agent's graph it is; unknown ones are not checked."""
        schema = self._registry.tool_schema(agent, tool)
        if schema is not None:
            check_value(schema, arguments, loc)

    def runnable(self, name: str) -> Runnable:
        """The registered agent or workflow of that name. Raises AgentNotFound."""
        return self._registry.get(name)

    def first_model(self, request: TurnRequest, name: str) -> Model:
        """The model that a turn begins with. Raises AgentNotFound, UpstreamFailure."""
        runnable = self.runnable(name)
        agent = runnable.agents[0] if isinstance(runnable, Workflow) else runnable
        if request.model is None and isinstance(agent.model, Model):
            return agent.model
        return self.models.get_model(request.model or (agent.model if isinstance(agent.model, str) else None))

    def adopt(self, agent: Agent[Any]) -> None:
        """Take in an agent that was made during a turn."""
        self._registry.adopt(agent)

    def observe_made(self, tools: Sequence[Tool]) -> None:
        """Take in tools that the SDK has made during a turn."""
        self._registry.observe_made(tools)

    def agent_for(self, request: TurnRequest, agent: Agent[Any]) -> Agent[Any]:
        """The first agent of a turn, with the request's overrides; the registered one is left as it is."""
        changes: dict[str, Any] = {}
        if request.instructions is not None:
            changes["instructions"] = request.instructions
        if request.output_schema is not None:
            changes["output_type"] = CallerSchema(request.output_schema)
        elif agent.output_type not in (None, str):
            changes["output_type"] = ForgivingSchema.of(agent.output_type)
        if request.tools:
            changes["tools"] = [*agent.tools, *(self._registry.observe(client_tool(t)) for t in request.tools)]
        if agent.input_guardrails:
            changes["input_guardrails"] = [_watched(guardrail) for guardrail in agent.input_guardrails]
        return agent.clone(**changes) if changes else agent

    def model_settings(self, request: TurnRequest) -> ModelSettings | None:
        """The overrides for every agent of the turn; None if there are none."""
        settings = ModelSettings(
            temperature=request.temperature,
            max_tokens=request.max_output_tokens,
            parallel_tool_calls=request.parallel_tool_calls,
            reasoning=Reasoning(effort=request.effort) if request.effort else None,
        )
        return settings if settings != ModelSettings() else None

    def _model(self, request: TurnRequest, agent: Runnable) -> str | None:
        if request.model is not None:
            if not self.models.serves(request.model):
                raise ModelNotFound(
                    f"No configured upstream serves the model {request.model!r}.",
                    errors=[{"loc": ["body", "model"], "message": "no upstream serves it"}],
                )
            return request.model
        if isinstance(agent, Workflow):
            agent = agent.agents[0]
        if isinstance(agent.model, str):
            return agent.model
        return self.models.default_model if agent.model is None else None

    def _check_client_tools(self, request: TurnRequest, agent: Runnable) -> None:
        if not request.tools:
            return
        taken = set() if isinstance(agent, Workflow) else names_in_use(agent)
        seen: set[str] = set()
        errors = []
        for index, tool in enumerate(request.tools):
            loc = ["body", "tools", index, "name"]
            if tool.name in taken:
                errors.append({"loc": loc, "message": f"{tool.name!r} is a tool of the agent {agent.name!r}"})
            elif tool.name in seen:
                errors.append({"loc": loc, "message": f"{tool.name!r} stands twice"})
            seen.add(tool.name)
            if tool.parameters is not None:
                checked_schema(tool.parameters, ["body", "tools", index, "parameters"])
        if errors:
            raise InvalidRequest("The client tools cannot be used.", errors=errors)


def _check_workflow_overrides(request: TurnRequest, workflow: Workflow) -> None:
    """A workflow decides itself what its agents are told, may call, and give back."""
    given = [name for name in ("instructions", "output_schema", "tools") if getattr(request, name)]
    if given:
        raise InvalidRequest(
            f"{workflow.name!r} is a workflow: it takes no {', '.join(given)}.",
            errors=[{"loc": ["body", name], "message": "a workflow does not take it"} for name in given],
        )


def _watched(guardrail: InputGuardrail[Any]) -> InputGuardrail[Any]:
    """The SDK raises a tripped guardrail only when the model's stream has ended; ours stops it at once."""

    async def watch(context: RunContextWrapper[Any], agent: Agent[Any], input: Any) -> GuardrailFunctionOutput:
        output = (await uncancelled(guardrail.run(agent, input, context))).output
        frame = current_scope.get()
        if output.tripwire_triggered and isinstance(frame, RunFrame):
            frame.turn.on_tripped(guardrail.get_name())
        return output

    return replace(guardrail, guardrail_function=watch, name=guardrail.get_name())
