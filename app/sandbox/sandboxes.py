"""What gives agents their sandboxes: confined by bubblewrap, not confined at all, or none."""

import logging
import shutil
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from agents.sandbox.manifest import Manifest
from agents.sandbox.session import SandboxSession
from agents.sandbox.session.sandbox_client import BaseSandboxClient

from app.domain.ids import TurnId
from app.errors import SandboxUnavailable
from app.sandbox.bubblewrap import Confinement
from app.sandbox.client import BubblewrapClient, BubblewrapOptions, Confiner
from app.sandbox.launcher import Launcher, LaunchError, launch
from app.sandbox.limits import SandboxLimits
from app.sandbox.unsafe_local import UnsafeLocalClient
from app.sandbox.workspaces import Workspaces

Backend = Literal["bubblewrap", "unsafe_local", "off"]
PROGRAM = "bwrap"

logger = logging.getLogger(__name__)


class Sandboxes:
    """The sandboxes of all turns. `backend` is what they are; `reason` says why there are none."""

    def __init__(
        self, workspaces: Workspaces, confiner: Confiner, backend: Backend, reason: str | None
    ) -> None:
        self._workspaces = workspaces
        self._confiner = confiner
        self.backend: Backend = backend
        self.reason = reason

    def client(self, turn_id: TurnId) -> BaseSandboxClient[Any]:
        """For the `RunConfig.sandbox` of the turn's runs. Raises SandboxUnavailable."""
        self.check()
        of_turn = self._workspaces.open(turn_id)
        if self.backend == "bubblewrap":
            return BubblewrapClient(self._confiner, of_turn)
        return UnsafeLocalClient(of_turn, self._confiner.launcher)

    def check(self) -> None:
        """Raises SandboxUnavailable where there are none."""
        if self.backend == "off":
            raise SandboxUnavailable(f"This agent works in a sandbox, and there is none here: {self.reason}.")

    @asynccontextmanager
    async def session(
        self, turn_id: TurnId, manifest: Manifest, *, name: str = "main", protected: Sequence[str] = ()
    ) -> AsyncIterator[SandboxSession]:
        """A started session for `SandboxRunConfig(session=...)`; the same name finds the same workspace again
        within the turn, also after a restart. Every process is gone when the context ends, the files stay
        until `remove`. Raises SandboxUnavailable."""
        options = BubblewrapOptions(name=name, protected=tuple(protected))
        async with await self.client(turn_id).create(manifest=manifest, options=options) as session:
            yield session

    async def remove(self, turn_id: TurnId) -> None:
        """The turn has ended: remove its workspaces."""
        await self._workspaces.remove(turn_id)

    async def sweep(self, keep: Collection[TurnId]) -> int:
        """At start: remove the workspaces that a crash left, of all turns but these; returns how many."""
        return await self._workspaces.sweep(keep)


@asynccontextmanager
async def open_sandboxes(
    root: Path, mode: Backend | None, limits: SandboxLimits | None = None, *, program: str | None = None
) -> AsyncIterator[Sandboxes]:
    """The sandboxes whose workspaces lie in `root`. `mode` None: bubblewrap if it works here, else off.

    Raises SandboxUnavailable if bubblewrap was asked for and does not work.
    """
    launcher = Launcher()
    found = program or shutil.which(PROGRAM) or PROGRAM
    confiner = Confiner(found, limits or SandboxLimits(), launcher)
    try:
        backend, reason = await _choose(mode, confiner)
        yield Sandboxes(Workspaces(root, launcher), confiner, backend, reason)
    finally:
        launcher.close()


async def _choose(mode: Backend | None, confiner: Confiner) -> tuple[Backend, str | None]:
    if mode == "off":
        return "off", "TURNWIRE_SANDBOX=off"
    if mode == "unsafe_local":
        logger.warning(
            "TURNWIRE_SANDBOX=unsafe_local: commands of models run as this user, on this machine, with its "
            "files and its network. Only for models and inputs that you trust."
        )
        return "unsafe_local", None
    problem = await confiner.launcher.work(lambda: probe(confiner.program, confiner.limits))
    if problem is None:
        return "bubblewrap", None
    if mode == "bubblewrap":
        raise SandboxUnavailable(f"TURNWIRE_SANDBOX=bubblewrap: {problem}")
    logger.warning("sandboxes are off: %s", problem)
    return "off", problem


def probe(program: str, limits: SandboxLimits) -> str | None:
    """Confine a command that does nothing; None if that works, else why not, in words. Blocks."""
    if shutil.which(program) is None:
        return f"{program!r} is not installed: it is the program of the package bubblewrap"
    with TemporaryDirectory(prefix="turnwire-probe-") as folder:
        try:
            launched = launch(Confinement(program, Path(folder), limits), ["true"])
        except LaunchError as error:
            return _explained(str(error))
        code = launched.process.wait()
        launched.abandon()
    return None if code == 0 else _explained(f"bubblewrap ended with {code}")


def _explained(problem: str) -> str:
    return (
        f"{problem}. Bubblewrap 0.8 or newer must be allowed to make user namespaces and to mount /proc in "
        "them; containers refuse that unless their seccomp, AppArmor and masked paths are relaxed for it"
    )
