"""What the policy agent finds in its sandbox, and what is read back from it."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from agents.sandbox import Dir, Manifest, Permissions, WorkspaceReadNotFoundError
from agents.sandbox.entries import BaseEntry, File
from agents.sandbox.files import EntryKind
from agents.sandbox.session import BaseSandboxSession

from app.builtin_agents.healthcare_support.case import Case
from app.builtin_agents.healthcare_support.records import Records

OUTPUT = "output"
FINDINGS = "policy_findings.md"
CHECKLIST = "human_review_checklist.md"
DOCUMENTS = (FINDINGS, CHECKLIST)
READ_ONLY = ("case", "policies")
LAYOUT = ("case/scenario.json", "case/transcript.txt", "policies/", "output/")

_READABLE = Permissions(owner=0o4, group=0o4, other=0o4)


class TurnWorkspaces(Protocol):
    """Confined workspaces, one for each turn."""

    @property
    def backend(self) -> str:
        """The name of what confines them."""
        ...

    def open(
        self, turn_id: str, manifest: Manifest, *, read_only: Sequence[str] = ()
    ) -> AbstractAsyncContextManager[BaseSandboxSession]:
        """A started session in the turn's workspace: made from `manifest` at first, later as it was left.

        Commands cannot write below the paths in `read_only`. No process outlives the context. Raises an error
        that says why if this service runs no sandboxes.
        """
        ...

    async def remove(self, turn_id: str) -> None:
        """Remove the turn's workspace, if there is one."""
        ...


def manifest(case: Case, records: Records) -> Manifest:
    return Manifest(
        entries={
            "case": Dir(
                children={
                    "scenario.json": _file(case.as_text().encode()),
                    "transcript.txt": _file(case.transcript.encode()),
                }
            ),
            "policies": Dir(children={name: _file(content) for name, content in records.policies.items()}),
            OUTPUT: Dir(),
        }
    )


def _file(content: bytes) -> BaseEntry:
    return File(content=content, permissions=_READABLE)


async def missing_documents(session: BaseSandboxSession) -> list[str]:
    """Paths of the documents that are not there, or are empty."""
    missing = []
    for name in DOCUMENTS:
        content = await _read(session, f"{OUTPUT}/{name}")
        if not content or not content.strip():
            missing.append(f"{OUTPUT}/{name}")
    return missing


async def output_files(session: BaseSandboxSession) -> dict[str, bytes]:
    """The regular top-level files of `output/` by name, sorted: no folders, no links."""
    files: dict[str, bytes] = {}
    entries = [entry for entry in await session.ls(OUTPUT) if entry.kind is EntryKind.FILE]
    for name in sorted(Path(entry.path).name for entry in entries):
        content = await _read(session, f"{OUTPUT}/{name}")
        if content is not None:
            files[name] = content
    return files


async def _read(session: BaseSandboxSession, path: str) -> bytes | None:
    try:
        handle = await session.read(Path(path))
    except (WorkspaceReadNotFoundError, FileNotFoundError):
        return None
    with handle:
        content = handle.read()
    return content.encode() if isinstance(content, str) else bytes(content)
