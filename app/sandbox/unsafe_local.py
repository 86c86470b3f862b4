"""The SDK's own client, for trusted models alone: commands run on this machine, as this user, unconfined."""

from uuid import uuid4

from agents.sandbox.manifest import Manifest
from agents.sandbox.sandboxes.unix_local import UnixLocalSandboxClient
from agents.sandbox.session import SandboxSession
from agents.sandbox.session.sandbox_client import BaseSandboxClientOptions
from agents.sandbox.snapshot import NoopSnapshotSpec, SnapshotBase, SnapshotSpec

from app.sandbox.client import BubblewrapOptions
from app.sandbox.launcher import Launcher
from app.sandbox.workspaces import TurnWorkspaces


class UnsafeLocalClient(UnixLocalSandboxClient):
    """The environment is not handed on. Workspaces lie where confined ones do; `protected` protects nothing."""

    def __init__(self, workspaces: TurnWorkspaces, launcher: Launcher) -> None:
        super().__init__(inherit_host_environment=False, host_environment_allowlist=("PATH", "LANG"))
        self._workspaces = workspaces
        self._launcher = launcher

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: BaseSandboxClientOptions | None = None,
    ) -> SandboxSession:
        name = options.name if isinstance(options, BubblewrapOptions) else None
        sandbox_id = uuid4() if name is None else self._workspaces.id_of(name)
        workspace = self._workspaces.workspace(sandbox_id)
        await self._launcher.work(workspace.make)
        await self._launcher.work(workspace.filled)
        placed = (manifest or Manifest()).model_copy(update={"root": str(workspace.folder)}, deep=True)
        return await super().create(snapshot=NoopSnapshotSpec(), manifest=placed)
