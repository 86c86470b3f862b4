"""What the policy agent finds in its sandbox, and what is read back from it."""

from pathlib import Path

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
PROTECTED = ("case", "policies")
LAYOUT = ("case/scenario.json", "case/transcript.txt", "policies/", "output/")

_READABLE = Permissions(owner=0o4, group=0o4, other=0o4)


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
        content = await read_output(session, name)
        if not content or not content.strip():
            missing.append(f"{OUTPUT}/{name}")
    return missing


async def output_names(session: BaseSandboxSession) -> list[str]:
    """The names of the regular top-level files of `output/`, sorted: no folders, no links."""
    entries = await session.ls(OUTPUT)
    return sorted(Path(entry.path).name for entry in entries if entry.kind is EntryKind.FILE)


async def read_output(session: BaseSandboxSession, name: str) -> bytes | None:
    """The bytes of one of them; None if it is gone."""
    return await _read(session, f"{OUTPUT}/{name}")


async def _read(session: BaseSandboxSession, path: str) -> bytes | None:
    try:
        handle = await session.read(Path(path))
    except (WorkspaceReadNotFoundError, FileNotFoundError):
        return None
    with handle:
        content = handle.read()
    return content.encode() if isinstance(content, str) else bytes(content)
