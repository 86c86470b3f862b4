"""The SDK's sandbox client for the workspaces of one turn."""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal
from uuid import uuid4

from agents.sandbox.manifest import Manifest
from agents.sandbox.session import SandboxSession, SandboxSessionState
from agents.sandbox.session.manager import Instrumentation
from agents.sandbox.session.sandbox_client import BaseSandboxClient, BaseSandboxClientOptions
from agents.sandbox.snapshot import NoopSnapshot, SnapshotBase, SnapshotSpec

from app.sandbox.bubblewrap import WORKSPACE, Confinement, Grant
from app.sandbox.confined import ConfinedWorkspace
from app.sandbox.files import Tree, WorkspaceFiles
from app.sandbox.launcher import Launcher
from app.sandbox.limits import SandboxLimits
from app.sandbox.session import BubblewrapSession, BubblewrapSessionState
from app.sandbox.workspaces import TurnWorkspaces

_OWN = (WORKSPACE, *map(PurePosixPath, ("/proc", "/dev", "/sys")))
_OWN_TOPS = tuple(map(PurePosixPath, ("/tmp", "/etc", "/usr")))  # noqa: S108 - inside of the sandbox


class BubblewrapOptions(BaseSandboxClientOptions):
    """`name` finds the same workspace again in the turn. `protected` are entries of the workspace's top folder
    that the manifest fills and that nobody may change after that."""

    type: Literal["bubblewrap"] = "bubblewrap"
    name: str | None = None
    protected: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Confiner:
    """How commands are confined on this machine."""

    program: str
    limits: SandboxLimits
    launcher: Launcher


class BubblewrapClient(BaseSandboxClient[BubblewrapOptions | None]):
    """Give it to the runs of one turn: `RunConfig(sandbox=SandboxRunConfig(client=...))`.

    A snapshot that is asked for is not made: the workspace itself lasts as long as the turn.
    """

    backend_id = "bubblewrap"
    supports_default_options = True

    def __init__(self, confiner: Confiner, workspaces: TurnWorkspaces) -> None:
        self._confiner = confiner
        self._workspaces = workspaces
        self._instrumentation = Instrumentation()

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: BubblewrapOptions | None = None,
    ) -> SandboxSession:
        """Raises ValueError for a manifest that asks for what cannot be had here."""
        given = options or BubblewrapOptions()
        sandbox_id = uuid4() if given.name is None else self._workspaces.id_of(given.name)
        state = BubblewrapSessionState(
            session_id=sandbox_id,
            manifest=manifest or Manifest(),
            snapshot=NoopSnapshot(id=str(sandbox_id)),
            protected=given.protected,
        )
        self._validate_manifest_for_create(state.manifest)
        return await self._open(state)

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        if not isinstance(state, BubblewrapSessionState):
            raise TypeError("the state of another kind of sandbox cannot be resumed under bubblewrap")
        state.assert_path_grants_rebound()
        return await self._open(state)

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """The workspace stays until the turn ends."""
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        return self._deserialize_session_state_payload(payload, BubblewrapSessionState)

    async def _open(self, state: BubblewrapSessionState) -> SandboxSession:
        _check(state)
        workspace = self._workspaces.workspace(state.session_id)
        grants = tuple(
            Grant(PurePosixPath(grant.path), Path(grant.host_path or grant.path))
            for grant in state.manifest.extra_path_grants
        )
        limits = self._confiner.limits
        confinement = Confinement(
            program=self._confiner.program,
            workspace=workspace.folder,
            limits=limits,
            grants=grants,
            environment=await state.manifest.environment.resolve(),
        )
        files = WorkspaceFiles(
            Tree(WORKSPACE, workspace.folder, writable=True),
            [Tree(grant.path, grant.host, writable=False) for grant in grants],
            limits,
        )
        confined = ConfinedWorkspace(confinement, self._confiner.launcher)
        session = BubblewrapSession(state, workspace, confined, files)
        return self._wrap_session(session, instrumentation=self._instrumentation)


def _check(state: BubblewrapSessionState) -> None:
    manifest = state.manifest
    tops = {PurePosixPath(str(entry)).parts[0] for entry in manifest.entries}
    if not tops.issuperset(state.protected):
        raise ValueError("protected: only what the manifest puts into the workspace's top folder")
    if PurePosixPath(manifest.root) != WORKSPACE:
        raise ValueError(f"manifest.root: the workspace is at {WORKSPACE} in this sandbox")
    if manifest.users or manifest.groups:
        raise ValueError("manifest.users, manifest.groups: there is one user in this sandbox")
    for grant in manifest.extra_path_grants:
        path = PurePosixPath(grant.path)
        if not grant.read_only:
            raise ValueError(f"manifest.extra_path_grants: {grant.path!r}: set read_only=True")
        if path in _OWN_TOPS or any(path.is_relative_to(own) for own in _OWN):
            raise ValueError(f"manifest.extra_path_grants: {grant.path!r} has another meaning in this sandbox")
