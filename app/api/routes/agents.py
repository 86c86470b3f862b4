"""The registered agents."""

from fastapi import Response

from app.api.answers import JsonAnswer, page_answer
from app.api.dependencies import GivenApi, GivenCaller
from app.api.documented import OBJECT, OBJECT_PAGE, problems
from app.api.routes.router import api_router

router = api_router("/v1/agents", "agents")


@router.get("", responses={**OBJECT_PAGE, **problems()})
async def list_agents(api: GivenApi, caller: GivenCaller) -> Response:
    """The registered agents, the default one first."""
    return page_answer(api.turns.agents())


@router.get("/{name}", responses={**OBJECT, **problems(404)})
async def read_agent(name: str, api: GivenApi, caller: GivenCaller) -> Response:
    """Its description, model, tools, handoffs, whether it may pause for approval, and examples."""
    return JsonAnswer(api.turns.agent(name))
