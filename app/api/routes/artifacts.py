"""Files that turns produced."""

from fastapi import Response

from app.api.answers import page_answer
from app.api.dependencies import GivenApi, GivenCaller
from app.api.documented import ARTIFACT, OBJECT_PAGE, problems
from app.api.routes.router import api_router
from app.errors import NotFound

router = api_router("/v1/turns/{turn_id}/artifacts", "artifacts")


@router.get("", responses={**OBJECT_PAGE, **problems(404)})
async def list_artifacts(turn_id: str, api: GivenApi, caller: GivenCaller) -> Response:
    """The files that the turn produced."""
    await api.turns.turn(caller, turn_id)
    return page_answer([])


@router.get("/{artifact_id}", responses={**ARTIFACT, **problems(404)})
async def read_artifact(turn_id: str, artifact_id: str, api: GivenApi, caller: GivenCaller) -> Response:
    """One file, always as an attachment."""
    await api.turns.turn(caller, turn_id)
    raise NotFound(f"The turn has no artifact {artifact_id[:128]!r}.")
