"""What the commands of one workspace may use, and who holds them to it.

| Limit | Held by |
| --- | --- |
| `wall_s`, of one command | a timer that kills the command |
| `cpu_s`, of all running commands | the watch; RLIMIT_CPU for each process |
| `memory_bytes`, of all processes | the watch; RLIMIT_AS for each process |
| `processes`, threads included | the watch; RLIMIT_NPROC, from which the kernel exempts root |
| `file_bytes`, of one file | RLIMIT_FSIZE, and our own writes |
| `open_files`, of one process | RLIMIT_NOFILE |
| `temporary_bytes` | the size of each of the two file systems in memory, `/tmp` and `/dev/shm` |
| `workspace_bytes`, `files` | the watch, and our own writes |
| `output_bytes`, of one command | whoever reads it kills the command |
| `commands` at a time | the workspace refuses the next one |

The watch looks every `watch_s`; what runs past a limit between two looks is killed at the next. One that
passes a limit of the workspace takes all its commands with it. What the kernel holds for a process outside of
its memory (socket buffers, page tables) is bounded through `processes` and `open_files` alone: give the
container a memory limit of its own.
"""

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Seconds, bytes or counts, as each name says."""

    wall_s: float = 120
    cpu_s: float = 120
    memory_bytes: int = 1024 * MIB
    processes: int = 64
    file_bytes: int = 64 * MIB
    open_files: int = 256
    temporary_bytes: int = 64 * MIB
    workspace_bytes: int = 256 * MIB
    files: int = 10_000
    output_bytes: int = 4 * MIB
    commands: int = 8
    watch_s: float = 0.05
