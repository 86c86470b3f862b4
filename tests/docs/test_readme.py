"""The README's commands do what it says: they are taken from it and run, against the real service."""

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.bounds import PROCESS_S
from tests.service.process import ServiceProcess

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
STRICT = 'curl() { command curl --silent --show-error --fail-with-body "$@"; }\n'


def section(title: str) -> str:
    """What stands under a heading of the second level or lower; under "", the first screen."""
    parts = re.split(r"^##+ (.*)$", README, flags=re.M)
    return dict(zip(["", *parts[1::2]], parts[0::2], strict=True))[title]


def blocks(title: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", section(title), re.S)


@dataclass
class Shell:
    """Runs a section's `sh` blocks in one shell, with the service where the README expects it."""

    base_url: str

    def run(self, title: str, *, without: str = "make ") -> str:
        commands = [line for block in blocks(title, "sh") for line in block.splitlines(keepends=True)]
        script = "".join(line for line in commands if without not in line)
        script = script.replace("http://127.0.0.1:8000", self.base_url)
        done = subprocess.run(
            ["sh", "-euc", STRICT + script], capture_output=True, text=True, timeout=PROCESS_S, check=False
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        assert done.stderr == ""
        return done.stdout


@contextmanager
def keyless(folder: Path, **environment: str) -> Iterator[Shell]:
    """The service as `make run` starts it where no key is: on the embedded model."""
    assert shutil.which("curl"), "the README's commands need curl"
    service = ServiceProcess(folder, "")
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "TURNWIRE_MODEL", "TURNWIRE_CONTEXT", "TURNWIRE_AGENTS"):
        del service.environment[name]
    service.environment |= environment
    with service:
        yield Shell(service.base_url)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with keyless(tmp_path_factory.mktemp("data")) as shell:
        yield shell


PAGES = [Path("README.md"), Path("CONTRIBUTING.md")]
PAGES += [page.relative_to(ROOT) for page in sorted(ROOT.glob("docs/*.md"))]


def anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def events(stream: str) -> list[dict[str, object]]:
    return [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: ")]


def test_the_first_screen_shows_text_and_nothing_else(shell: Shell) -> None:
    text = shell.run("")
    assert text.strip()
    assert not events(text)


def test_the_second_screen_shows_the_events(shell: Shell) -> None:
    shown = events(shell.run("The events"))
    assert [event["seq"] for event in shown] == list(range(1, len(shown) + 1))
    assert shown[-1]["type"] == "turn.completed"
    (example,) = blocks("The events", "text")
    for kind in re.findall(r"^event: (.*)$", example, re.M):
        assert kind in {event["type"] for event in shown}


def test_a_listener_comes_back_after_its_last_event(shell: Shell) -> None:
    numbers = [event["seq"] for event in events(shell.run("Lose the connection, and come back"))]
    whole = numbers.index(8, 8)
    assert numbers[:whole] == list(range(1, whole + 1))
    assert numbers[whole:] == list(range(8, whole + 1))


def test_a_cancelled_turn_says_so(shell: Shell) -> None:
    turn = json.loads(shell.run("Cancel"))
    assert turn["status"] == "cancelled"
    assert turn["cancel"]["mode"] == "keep"


def test_a_person_is_asked_and_the_tool_runs_once_it_is_approved() -> None:
    command = re.search(r"make demo ARGS=(\S+?)`", section("Ask a person first"))
    assert command
    arguments = [sys.executable, "-m", "demo", command.group(1), "--port", "0"]
    with subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True) as demo:
        try:
            assert demo.stdout
            address = re.search(r"http://[\d.:]+\d", demo.stdout.readline())
            assert address
            shown = Shell(address.group()).run("Ask a person first")
        finally:
            demo.send_signal(signal.SIGINT)
            demo.wait(timeout=PROCESS_S)
    assert shown == "The postcard to Ada is on its way."


def test_a_conversation_holds_both_turns(shell: Shell) -> None:
    shown = shell.run("Conversations")
    items = json.loads(shown[shown.index('{"data"') :])["data"]
    assert [item["item"]["role"] for item in items] == ["user", "assistant", "user", "assistant"]
    assert "My name is Ada." in json.dumps(items[0])


def test_the_agent_of_the_example_is_found_and_has_its_tool(tmp_path: Path) -> None:
    (source,) = blocks("Your own agents", "python")
    name = re.match(r"# (\w+\.py)\n", source)
    agents = re.search(r"TURNWIRE_AGENTS=(\S+) make run", section("Your own agents"))
    assert name
    assert agents
    (tmp_path / name.group(1)).write_text(source)
    with keyless(tmp_path / "data", TURNWIRE_AGENTS=agents.group(1), PYTHONPATH=str(tmp_path)) as shell:
        agent = json.loads(shell.run("Your own agents"))
    assert agent["name"] == "forecaster"
    assert "weather" in json.dumps(agent["tools"])


def test_the_desk_lists_its_scenarios(shell: Shell) -> None:
    told = json.loads(shell.run("The healthcare support desk"))
    assert "messy_ambiguous_knee_case" in told["examples"]


def test_every_make_command_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    for page in ("README.md", "CONTRIBUTING.md", "docs/performance.md"):
        named = set(re.findall(r"(?:`|^|\s)make ([a-z]+)\b(?=[\s`]| ARGS)", (ROOT / page).read_text()))
        assert named - {"s"} <= targets


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_link_within_the_repository_leads_somewhere(page: Path) -> None:
    file = ROOT / page
    text = file.read_text()
    anchors = {anchor(heading) for heading in re.findall(r"^#+ (.*)$", text, re.M)}
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("#"):
            assert target[1:] in anchors
        elif "://" not in target:
            assert (file.parent / target.split("#")[0]).exists(), target


def test_the_readme_leads_to_every_page_of_the_docs() -> None:
    assert {p.name for p in (ROOT / "docs").glob("*.md")} <= set(re.findall(r"docs/(\w+\.md)", README))
