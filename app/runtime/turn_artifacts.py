"""The files that a turn offers: kept, then announced as `artifact.created`."""

from app.domain.events import ArtifactCreated
from app.domain.json_types import JsonObject
from app.domain.ports import ArtifactKeeper
from app.domain.turn import Turn
from app.runtime.scope import TurnScope


class TurnArtifacts:
    """See `workflow.Artifacts`."""

    def __init__(self, keeper: ArtifactKeeper, turn: Turn, scope: TurnScope) -> None:
        self._keeper = keeper
        self._turn = turn
        self._scope = scope

    async def add(self, name: str, content: bytes, media_type: str | None = None) -> JsonObject:
        kept = await self._keeper.add(self._turn, name, content, media_type)
        self._scope.report(ArtifactCreated(kept.id, kept.name, kept.media_type, kept.size, kept.url), None)
        return kept.as_json()
