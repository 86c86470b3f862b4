"""Commands try to get out, each in its way."""

import os
import socket
import sys
from pathlib import Path

import anyio
import pytest

from tests.sandbox.conftest import Inside

pytestmark = pytest.mark.anyio


async def test_an_ordinary_command_works_in_the_workspace(inside: Inside) -> None:
    said = await inside.sh(
        "pwd; id -un; echo hello > note.txt; cat note.txt; ls -la | wc -l; awk 'BEGIN{print 6*7}'"
    )
    assert said.code == 0
    assert said.out.split() == ["/workspace", "sandbox", "hello", "4", "42"]
    assert (inside.folder / "note.txt").read_text() == "hello\n"


@pytest.mark.parametrize(
    "path", ["/etc/shadow", "/etc/hostname", "/root", "/home", "/var", "/sys", "/run", "/boot"]
)
async def test_files_of_the_host_do_not_exist(inside: Inside, path: str) -> None:
    said = await inside.sh(f"ls -la {path}")
    assert said.code != 0
    assert "No such file" in said.err


async def test_the_data_folder_does_not_exist(inside: Inside, data: Path) -> None:
    said = await inside.sh(
        f"cat {data}/turnwire.db; ls {data}; cat ../turnwire.db ../../turnwire.db; ls {data.parent}"
    )
    assert "secret" not in said.all
    assert said.err.count("No such file") >= 4


async def test_only_the_workspace_and_the_temporary_folders_can_be_written(inside: Inside) -> None:
    said = await inside.sh(
        "for f in / /usr /usr/bin /etc /dev /proc /workspace /tmp /dev/shm; do"
        " (echo x > $f/x) 2>/dev/null && echo $f; done; true"
    )
    assert said.out.split() == ["/workspace", "/tmp", "/dev/shm"]


async def test_the_settings_of_the_kernel_cannot_be_written(inside: Inside) -> None:
    """Where the service runs as root, the command's user owns them as far as the kernel is concerned."""
    said = await inside.sh(
        "cat /proc/sys/kernel/core_pattern > /proc/sys/kernel/core_pattern;"
        " test -w /proc/sys/kernel/hostname && echo writable"
    )
    assert "Read-only file system" in said.err or "Permission denied" in said.err
    assert said.out == ""


async def test_links_to_the_host_lead_nowhere(inside: Inside, data: Path) -> None:
    said = await inside.sh(
        f"ln -s {data}/turnwire.db a; ln -s /proc/1/root/etc/shadow b; cat a b; cat /proc/1/cwd/../../*"
    )
    assert "secret" not in said.all
    assert "root:" not in said.all


async def test_the_environment_is_empty(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-host")
    said = await inside.sh("env; cat /proc/*/environ | tr '\\0' '\\n'")
    names = {line.partition("=")[0] for line in said.out.splitlines()}
    assert names <= {"PATH", "HOME", "LANG", "PWD"}
    assert "sk-of-the-host" not in said.all


async def test_the_hosts_loopback_cannot_be_reached(inside: Inside) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        said = await inside.python(f"import socket; socket.create_connection(('127.0.0.1', {port}), 1)")
        assert "ConnectionRefusedError" in said.err or "unreachable" in said.err


async def test_there_is_no_network_but_an_empty_loopback(inside: Inside) -> None:
    said = await inside.python(
        "import socket; print(socket.if_nameindex()); socket.create_connection(('1.1.1.1', 53), 1)"
    )
    assert said.out.strip() == "[(1, 'lo')]"
    assert "Network is unreachable" in said.err


async def test_abstract_sockets_of_the_host_do_not_exist(inside: Inside) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0turnwire-test-of-sandboxes")
        server.listen()
        said = await inside.python(
            "import socket; socket.socket(socket.AF_UNIX).connect('\\0turnwire-test-of-sandboxes')"
        )
    assert "ConnectionRefusedError" in said.err


async def test_processes_of_the_host_are_neither_seen_nor_killed(inside: Inside) -> None:
    async with await anyio.open_process([sys.executable, "-c", "input()"]) as victim:
        said = await inside.sh(
            f"ls /proc | grep -c '^[0-9]'; kill -9 {victim.pid}; kill -9 {os.getpid()}; kill -9 -1; echo"
        )
        assert victim.returncode is None
        victim.kill()
    assert int(said.out.split()[0]) < 10
    assert "No such process" in said.err


async def test_the_users_own_first_process_shows_nothing_of_the_host(inside: Inside, data: Path) -> None:
    said = await inside.sh(
        "ls /proc/1/root/ /proc/1/cwd/ /proc/1/fd; cat /proc/1/cmdline /proc/1/maps | head -c 20000"
    )
    assert "home" not in said.out.split()
    assert "root" not in said.out.split()
    assert str(data) not in said.all


async def test_no_descriptor_of_the_service_is_inherited(inside: Inside, data: Path) -> None:
    with (data / "turnwire.db").open() as secret:
        os.set_inheritable(secret.fileno(), True)
        said = await inside.python(
            "import os\n"
            "for fd in range(3, 256):\n"
            "    try: print(os.readlink(f'/proc/self/fd/{fd}'), os.read(fd, 100))\n"
            "    except OSError: pass"
        )
    assert said.out == ""


async def test_programs_that_change_the_user_change_nothing(inside: Inside) -> None:
    """A set-user-id program of the host keeps the caller's user; there is no capability and no way to one."""
    said = await inside.sh(
        "grep -E '^(NoNewPrivs|CapEff|CapBnd|CapPrm):' /proc/self/status;"
        " cp /bin/sh mysh; chmod u+s mysh; ./mysh -p -c 'id -u'; su -c id; mount -t tmpfs x /tmp;"
        " unshare -Ur id; chroot / id; mknod /tmp/disk b 8 0"
    )
    lines = said.out.splitlines()
    assert sorted(lines[:4]) == [
        "CapBnd:\t0000000000000000",
        "CapEff:\t0000000000000000",
        "CapPrm:\t0000000000000000",
        "NoNewPrivs:\t1",
    ]
    assert lines[4:] == ["1000"]


async def test_devices_of_the_host_do_not_exist(inside: Inside) -> None:
    said = await inside.sh(
        "ls /dev; cat /proc/kcore /proc/kmsg /dev/mem | head -c 10; echo b > /proc/sysrq-trigger"
    )
    names = set(said.out.split())
    assert names <= {
        *("core", "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty"),
        *("urandom", "zero", "console"),
    }
    assert "sysrq" in said.err
