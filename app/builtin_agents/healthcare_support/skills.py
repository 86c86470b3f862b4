"""Skills that ship with the desk, put into the workspace only when the model asks for one."""

import io
import json
import re
from collections.abc import Mapping
from pathlib import Path

from agents import Tool, function_tool
from agents.sandbox import SandboxPathGrant, WorkspaceReadNotFoundError
from agents.sandbox.capabilities import LazySkillSource, SkillMetadata, Skills
from agents.sandbox.session import BaseSandboxSession
from agents.sandbox.types import User

_DESCRIPTION = re.compile(r"^description:[ \t]*(.+)$", re.MULTILINE)


class SkillShelf(Skills):
    """The SDK's capability, but its tool answers in JSON: the SDK would show a model the `str()` of a dict."""

    def tools(self) -> list[Tool]:
        async def load_skill(skill_name: str) -> str:
            """Put a skill into the workspace, so that its SKILL.md and its other files can be read there.

            Args:
                skill_name: As the list of skills has it.
            """
            return json.dumps(await self.load_skill(skill_name), sort_keys=True)

        return [function_tool(load_skill)]


class PackagedSkills(LazySkillSource):
    """Writes a skill's files from memory: the sandbox needs no grant to any folder of the service."""

    skills: Mapping[str, Mapping[str, bytes]]

    def list_skill_metadata(
        self, *, skills_path: str, source_grants: tuple[SandboxPathGrant, ...] = ()
    ) -> list[SkillMetadata]:
        return [
            SkillMetadata(name, _description(files["SKILL.md"]), Path(skills_path) / name)
            for name, files in self.skills.items()
        ]

    async def load_skill(
        self,
        *,
        skill_name: str,
        session: BaseSandboxSession,
        skills_path: str,
        user: str | User | None = None,
    ) -> dict[str, str]:
        files = self.skills.get(skill_name)
        if files is None:
            return {"error": f"There is no skill {skill_name!r}; there are {', '.join(self.skills)}."}
        folder = Path(skills_path) / skill_name
        told = {"skill_name": skill_name, "path": folder.as_posix()}
        if await _is_there(session, folder / "SKILL.md", user):
            return {"status": "already_loaded", **told}
        for name, content in files.items():
            path = folder / name
            await session.mkdir(path.parent, parents=True, user=user)
            await session.write(path, io.BytesIO(content), user=user)
        return {"status": "loaded", **told}


def _description(markdown: bytes) -> str:
    found = _DESCRIPTION.search(markdown.decode())
    return found[1].strip() if found else ""


async def _is_there(session: BaseSandboxSession, path: Path, user: str | User | None) -> bool:
    try:
        (await session.read(path, user=user)).close()
    except (WorkspaceReadNotFoundError, FileNotFoundError):
        return False
    return True
