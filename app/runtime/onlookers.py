"""Who may look at a run's input beside our models: for them the SDK is given the history item by item.

Tools, instructions and output guardrails are none: they see the input by `RunContext`, as it was.
"""

from collections.abc import Iterable
from typing import Any

from agents import Agent, AgentHooks, Handoff, RunConfig, RunContextWrapper, RunHooks
from agents.sandbox import SandboxAgent

from app.runtime.agent_graph import handoff_target, reachable_by_handoff
from app.runtime.models.foreign import TappedModel
from app.runtime.models.model import UpstreamModel


def has_onlookers(agent: Agent[Any], config: RunConfig, hooks: RunHooks[Any] | None, context: object) -> bool:
    """True if code that is not ours may be given the input of a run that begins with `agent`."""
    return (
        bool(agent.input_guardrails)
        or bool(config.input_guardrails)
        or config.handoff_input_filter is not None
        or config.nest_handoff_history
        or config.call_model_input_filter is not None
        or _overrides(hooks, RunHooks, ("on_agent_start", "on_llm_start"))
        or isinstance(context, RunContextWrapper)
        or any(_looks(each) for each in reachable_by_handoff(agent))
    )


def _looks(agent: Agent[Any]) -> bool:
    """Sandbox agents have capabilities that rewrite the input."""
    is_ours = agent.model is None or isinstance(agent.model, str | UpstreamModel | TappedModel)
    return (
        not is_ours
        or isinstance(agent, SandboxAgent)
        or _overrides(agent.hooks, AgentHooks, ("on_start", "on_llm_start"))
        or any(_rewrites(handoff) for handoff in agent.handoffs if isinstance(handoff, Handoff))
    )


def _rewrites(handoff: Handoff[Any, Any]) -> bool:
    """True too if nobody knows to whom it leads: that agent may look."""
    changes = handoff.input_filter is not None or bool(handoff.nest_handoff_history)
    return changes or handoff_target(handoff) is None


def _overrides(hooks: object, base: type, names: Iterable[str]) -> bool:
    if hooks is None:
        return False
    methods = {name: getattr(getattr(hooks, name, None), "__func__", None) for name in names}
    return any(method is not getattr(base, name) for name, method in methods.items())
