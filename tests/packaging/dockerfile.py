"""The Dockerfile as data, and its steps carried out in an empty folder: no engine is needed."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
OWN_FOLDERS = ("/opt/turnwire", "/opt/build", "/opt/wheels", "/src", "/data", "/agents")
USER = "10001"


@dataclass(frozen=True)
class Step:
    instruction: str
    text: str


@dataclass
class Stage:
    name: str
    base: str
    steps: list[Step] = field(default_factory=list)

    def all(self, instruction: str) -> list[str]:
        return [step.text for step in self.steps if step.instruction == instruction]

    @property
    def environment(self) -> dict[str, str]:
        return dict(word.split("=", 1) for text in self.all("ENV") for word in shlex.split(text))

    def command(self, instruction: str) -> list[str]:
        """The JSON form of `CMD` or of a health check's command."""
        (text,) = self.all(instruction)
        words: list[str] = json.loads(text[text.index("[") :])
        return words


def stages() -> dict[str, Stage]:
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    found: dict[str, Stage] = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        instruction, rest = line.split(maxsplit=1)
        if instruction == "FROM":
            base, name = re.split(r"\s+AS\s+", rest)
            stage = found[name] = Stage(name, base)
        else:
            stage.steps.append(Step(instruction, rest))
    return found


@dataclass
class Prefix:
    """An empty folder that stands for the image's root: the image's own folders lie in it."""

    root: Path

    def moved(self, text: str) -> str:
        for folder in OWN_FOLDERS:
            text = re.sub(rf"(?<![\w.]){folder}\b", f"{self.root}{folder}", text)
        return text.replace(USER, str(os.getuid()))

    def carry_out(self, stage: Stage) -> None:
        """Each COPY from the checkout and each RUN, in order."""
        folder = Path(self.moved("/src"))
        folder.mkdir(parents=True, exist_ok=True)
        for step in stage.steps:
            if step.instruction == "COPY":
                *sources, target = step.text.split()
                self._copy(sources, folder / target)
            elif step.instruction == "RUN":
                self._run(self.moved(step.text), folder)

    def environment(self, stage: Stage, **more: str) -> dict[str, str]:
        """What a container of this image would start with."""
        path = os.environ["PATH"]
        image = {n: self.moved(v).replace("$PATH", path) for n, v in stage.environment.items()}
        return image | more

    def _copy(self, sources: list[str], target: Path) -> None:
        for source in sources:
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / source, target)

    def _run(self, command: str, folder: Path) -> None:
        kept = {
            n: v for n, v in os.environ.items() if not n.startswith(("TURNWIRE_", "OPENAI_", "VIRTUAL_ENV"))
        }
        path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
        done = subprocess.run(
            ["/bin/sh", "-ec", command],
            cwd=folder,
            env=kept | {"PATH": path},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, f"RUN {command}\n{done.stdout}\n{done.stderr}"
