"""What the SDK asks of a sandbox session, and what a model's tools do with it."""

import io
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from agents.editor import ApplyPatchOperation
from agents.sandbox.entries import Dir, File, LocalDir
from agents.sandbox.errors import (
    ExecTransportError,
    PtySessionNotFoundError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.files import EntryKind
from agents.sandbox.manifest import Environment, Manifest
from agents.sandbox.workspace_paths import SandboxPathGrant

from app.domain.ids import TurnId
from app.sandbox import BubblewrapOptions, Sandboxes, open_sandboxes
from tests.sandbox.conftest import LIMITS, Inside, folder_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    folder = tmp_path / "policies"
    folder.mkdir()
    (folder / "knee.md").write_text("Imaging of the knee needs a referral.\n")
    return folder


@pytest.fixture
def manifest(policies: Path) -> Manifest:
    """A case as an agent gets it."""
    return Manifest(
        entries={
            "case": Dir(children={"scenario.json": File(content=b'{"id": 1}')}),
            "policies": LocalDir(src=policies),
            "output": Dir(),
        },
        extra_path_grants=(SandboxPathGrant(path=str(policies), read_only=True),),
    )


@pytest.fixture
async def case(sandboxes: Sandboxes, manifest: Manifest, data: Path, turn_id: TurnId) -> AsyncIterator[Inside]:
    async with sandboxes.session(turn_id, manifest, protected=("case", "policies")) as session:
        yield Inside(session, folder_of(data, turn_id))


async def read(inside: Inside, path: str) -> bytes:
    content: bytes = (await inside.session.read(Path(path))).read()
    return content


async def test_a_manifest_is_what_a_command_finds(case: Inside) -> None:
    said = await case.sh("find . -type f | sort; cat case/scenario.json; grep -ril referral policies")
    assert said.out == './case/scenario.json\n./policies/knee.md\n{"id": 1}policies/knee.md\n'


async def test_a_granted_path_can_be_read_and_not_written(case: Inside, policies: Path) -> None:
    said = await case.sh(f"cat {policies}/knee.md; echo x > {policies}/knee.md; rm {policies}/knee.md")
    assert said.out.startswith("Imaging of the knee")
    assert said.err.count("Read-only file system") == 2
    assert await read(case, f"{policies}/knee.md") == (policies / "knee.md").read_bytes()
    with pytest.raises(WorkspaceArchiveWriteError):
        await case.session.write(policies / "knee.md", io.BytesIO(b"x"))


async def test_what_is_protected_can_be_changed_by_nobody(case: Inside) -> None:
    said = await case.sh(
        "echo x > case/scenario.json; rm -rf policies; mv case other; chmod -R 777 case; echo fine > output/a"
    )
    assert said.err.count("Read-only file system") + said.err.count("busy") >= 4
    with pytest.raises(WorkspaceArchiveWriteError):
        await case.session.write(Path("case/scenario.json"), io.BytesIO(b"x"))
    with pytest.raises(WorkspaceArchiveWriteError):
        await case.session.rm("policies", recursive=True)
    assert await read(case, "case/scenario.json") == b'{"id": 1}'
    assert await read(case, "output/a") == b"fine\n"


async def test_a_workspace_survives_a_restart(data: Path, manifest: Manifest, turn_id: TurnId) -> None:
    async with (
        open_sandboxes(data / "workspaces", "bubblewrap", LIMITS) as before,
        before.session(turn_id, manifest, protected=("case",)) as session,
    ):
        await session.exec("echo kept > output/a; echo changed > policies/knee.md")
    async with (
        open_sandboxes(data / "workspaces", "bubblewrap", LIMITS) as after,
        after.session(turn_id, manifest, protected=("case",)) as session,
    ):
        result = await session.exec("cat output/a policies/knee.md; echo x > case/scenario.json")
    assert result.stdout == b"kept\nchanged\n"
    assert b"Read-only" in result.stderr


async def test_a_workspace_that_was_half_filled_by_a_crash_is_filled_again(
    sandboxes: Sandboxes, data: Path, manifest: Manifest, turn_id: TurnId
) -> None:
    async with sandboxes.session(turn_id, Manifest()):
        folder = folder_of(data, turn_id)
    (folder / "stray").touch()
    folder.with_name(f"{folder.name}.filled").unlink()
    async with sandboxes.session(turn_id, manifest) as session:
        result = await session.exec("ls")
    assert result.stdout.split() == [b"case", b"output", b"policies"]


async def test_the_sdk_resumes_a_session_from_its_serialised_state(
    sandboxes: Sandboxes, manifest: Manifest, turn_id: TurnId
) -> None:
    client = sandboxes.client(turn_id)
    first = await client.create(manifest=manifest, options=BubblewrapOptions(protected=("case",)))
    async with first:
        await first.exec("echo kept > output/a")
    payload = client.serialize_session_state(first.state)
    again = sandboxes.client(turn_id)
    async with await again.resume(again.deserialize_session_state(payload)) as second:
        result = await second.exec("cat output/a; echo x > case/scenario.json")
    assert (result.stdout, b"Read-only" in result.stderr) == (b"kept\n", True)


async def test_two_sandboxes_of_a_turn_share_nothing(sandboxes: Sandboxes, turn_id: TurnId) -> None:
    async with (
        sandboxes.session(turn_id, Manifest(), name="one") as one,
        sandboxes.session(turn_id, Manifest(), name="other") as other,
    ):
        await one.exec("touch mine")
        assert (await other.exec("ls")).stdout == b""


@pytest.mark.parametrize(
    "plant",
    [
        "ln -s {secret} output/planted",
        "rmdir output; ln -s {folder} output; :",
        "ln -s /proc/self/root{secret} output/planted",
        "ln {secret} output/planted; mkfifo output/planted",
        "cd output && mkdir planted",
    ],
)
async def test_a_planted_file_leaks_nothing_of_the_host(case: Inside, data: Path, plant: str) -> None:
    secret = data / "planted"
    secret.write_text("a secret of the host")
    await case.sh(plant.format(secret=secret, folder=data))
    with pytest.raises((WorkspaceArchiveReadError, WorkspaceReadNotFoundError)):
        await read(case, "output/planted")
    with pytest.raises(WorkspaceArchiveWriteError):
        await case.session.write(Path("output/planted"), io.BytesIO(b"x"))
    assert secret.read_text() == "a secret of the host"


async def test_links_are_listed_as_links_and_not_followed(case: Inside) -> None:
    await case.sh("cd output; ln -s /etc link; mkdir folder; echo 123 > file; mkfifo pipe")
    listed = {Path(entry.path).name: entry for entry in await case.session.ls("output")}
    assert {name: entry.kind for name, entry in listed.items()} == {
        "file": EntryKind.FILE,
        "folder": EntryKind.DIRECTORY,
        "link": EntryKind.SYMLINK,
        "pipe": EntryKind.OTHER,
    }
    assert listed["file"].path == "/workspace/output/file"
    assert listed["file"].size == 4


@pytest.mark.parametrize(
    "path", ["../x", "/etc/passwd", "/workspace/../etc/passwd", "output/../../x", "/proc/1/environ"]
)
async def test_paths_out_of_the_workspace_are_refused(case: Inside, path: str) -> None:
    with pytest.raises(Exception, match=r"(?i)path"):
        await read(case, path)
    with pytest.raises(Exception, match=r"(?i)path"):
        await case.session.write(Path(path), io.BytesIO(b"x"))


async def test_a_patch_creates_changes_moves_and_deletes(case: Inside) -> None:
    patch = case.session.apply_patch
    await patch(ApplyPatchOperation(type="create_file", path="output/a.md", diff="+one\n+two"))
    await patch(ApplyPatchOperation(type="update_file", path="output/a.md", diff="@@\n one\n-two\n+three"))
    assert await read(case, "output/a.md") == b"one\nthree"
    await patch(ApplyPatchOperation(type="delete_file", path="output/a.md"))
    with pytest.raises(WorkspaceReadNotFoundError):
        await read(case, "output/a.md")


async def test_files_are_made_moved_compared_and_removed(case: Inside) -> None:
    session = case.session
    await session.mkdir("output/deep/er", parents=True)
    await session.write(Path("output/deep/er/a"), io.BytesIO(b"text"))
    await session.mv("output/deep/er/a", "output/b")
    assert await session.same_file("output/b", "output/./b")
    assert not await session.same_file("output/b", "output/deep")
    await session.rm("output/deep", recursive=True)
    assert [entry.path for entry in await session.ls("output")] == ["/workspace/output/b"]
    assert await session.read_bounded(Path("output/b"), max_bytes=2) == b"te"


async def test_exec_command_goes_on_in_the_background(inside: Inside) -> None:
    await inside.sh("mkfifo gate")
    begun = await inside.session.pty_exec_start(
        "echo one; read -r _ < gate; echo two; exit 3", yield_time_s=0.3
    )
    assert begun.output == b"one\n"
    assert begun.process_id is not None
    await inside.sh("echo go > gate")
    ended = await inside.session.pty_write_stdin(session_id=begun.process_id, chars="", yield_time_s=5)
    assert (ended.output, ended.exit_code, ended.process_id) == (b"two\n", 3, None)
    with pytest.raises(PtySessionNotFoundError):
        await inside.session.pty_write_stdin(session_id=begun.process_id, chars="")


async def test_a_terminal_takes_what_is_typed(inside: Inside) -> None:
    begun = await inside.session.pty_exec_start(
        "test -t 0 && read -r x; echo got $x", tty=True, yield_time_s=0.3
    )
    assert begun.process_id is not None
    ended = await inside.session.pty_write_stdin(session_id=begun.process_id, chars="hello\n", yield_time_s=5)
    assert ended.output.replace(b"\r", b"") == b"hello\ngot hello\n"
    assert ended.exit_code == 0


async def test_an_interrupt_reaches_the_command_alone(inside: Inside) -> None:
    begun = await inside.session.pty_exec_start(
        "trap 'echo interrupted; exit 7' INT; while :; do sleep 0.05; done", tty=True, yield_time_s=0.3
    )
    assert begun.process_id is not None
    ended = await inside.session.pty_write_stdin(session_id=begun.process_id, chars="\x03", yield_time_s=5)
    assert b"interrupted" in ended.output
    assert ended.exit_code == 7


async def test_stdin_needs_a_terminal(inside: Inside) -> None:
    begun = await inside.session.pty_exec_start("sleep 60", yield_time_s=0.25)
    assert begun.process_id is not None
    with pytest.raises(RuntimeError, match="stdin is not available for this process"):
        await inside.session.pty_write_stdin(session_id=begun.process_id, chars="x")


async def test_the_environment_of_the_manifest_is_all_there_is(sandboxes: Sandboxes, turn_id: TurnId) -> None:
    manifest = Manifest(environment=Environment(value={"CASE": "knee"}))
    async with sandboxes.session(turn_id, manifest) as session:
        result = await session.exec("env", shell=False)
    assert sorted(result.stdout.decode().split()) == [
        "CASE=knee",
        "HOME=/workspace",
        "LANG=C.UTF-8",
        "PATH=/usr/local/bin:/usr/bin:/bin",
        "PWD=/workspace",
    ]


async def test_a_closed_sandbox_runs_nothing(sandboxes: Sandboxes, turn_id: TurnId) -> None:
    async with sandboxes.session(turn_id, Manifest()) as session:
        pass
    with pytest.raises(ExecTransportError, match="the sandbox is closed"):
        await session.exec("true")


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        (Manifest(root="/usr"), "manifest.root"),
        (Manifest(extra_path_grants=(SandboxPathGrant(path="/srv"),)), "read_only=True"),
        (Manifest(extra_path_grants=(SandboxPathGrant(path="/proc/1", read_only=True),)), "another meaning"),
    ],
)
async def test_a_manifest_that_cannot_be_had_is_refused(
    sandboxes: Sandboxes, turn_id: TurnId, manifest: Manifest, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        await sandboxes.client(turn_id).create(manifest=manifest, options=None)
