"""Files that turns produced."""

from fastapi import Response

from app.api.answers import attachment, page_answer
from app.api.dependencies import GivenApi, GivenCaller
from app.api.documented import ARTIFACT, OBJECT_PAGE, problems
from app.api.routes.router import api_router

router = api_router("/v1/turns/{turn_id}/artifacts", "artifacts")


@router.get("", responses={**OBJECT_PAGE, **problems(404)})
async def list_artifacts(turn_id: str, api: GivenApi, caller: GivenCaller) -> Response:
    """The files that the turn produced."""
    return page_answer([one.as_json() for one in await api.turns.artifacts(caller, turn_id)])


@router.get("/{artifact_id}", responses={**ARTIFACT, **problems(404)})
async def read_artifact(turn_id: str, artifact_id: str, api: GivenApi, caller: GivenCaller) -> Response:
    """One file, always as an attachment."""
    artifact, content = await api.turns.artifact(caller, turn_id, artifact_id)
    return attachment(artifact, content)
