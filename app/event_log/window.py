"""The newest entries of a live log, in memory up to a bound in bytes; a listener is a cursor over them."""

from collections.abc import Sequence

from app.domain.events import LogEntry

ENTRY_BYTES = 256
"""What an entry costs beside its text, which counts twice: each wire protocol's frame holds it again."""


class Window:
    """Entries have consecutive numbers. Those that do not fit any more are behind the window."""

    def __init__(self, next_seq: int, max_bytes: int) -> None:
        self._entries: list[LogEntry] = []
        self.last_seq = next_seq - 1
        self._bytes = 0
        self._max_bytes = max_bytes

    @property
    def first_seq(self) -> int:
        return self.last_seq + 1 - len(self._entries)

    def add(self, entries: Sequence[LogEntry]) -> None:
        """Add the entries that follow; the newest one stays in the window whatever its size."""
        self._entries.extend(entries)
        self.last_seq += len(entries)
        for entry in entries:
            self._bytes += 2 * len(entry.data) + ENTRY_BYTES
        if self._bytes > self._max_bytes:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        dropped = 0
        while self._bytes > self._max_bytes and dropped < len(self._entries) - 1:
            self._bytes -= _cost(self._entries[dropped])
            dropped += 1
        del self._entries[:dropped]

    def holds(self, seq: int) -> bool:
        """False if the entry with that number is behind the window."""
        return seq >= self.first_seq

    def after(self, seq: int, max_bytes: int) -> list[LogEntry]:
        """Entries behind number `seq`, up to `max_bytes` but at least one if there is any."""
        if seq == self.last_seq - 1:  # a listener that keeps up
            return self._entries[-1:]
        found: list[LogEntry] = []
        size = 0
        for index in range(max(0, seq + 1 - self.first_seq), len(self._entries)):
            entry = self._entries[index]
            size += len(entry.data)
            if found and size > max_bytes:
                break
            found.append(entry)
        return found


def _cost(entry: LogEntry) -> int:
    return 2 * len(entry.data) + ENTRY_BYTES
