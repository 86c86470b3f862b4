"""The journal: events that are not in the database yet, kept so that no end of the process loses them.

The event loop writes it itself, into mapped memory: that costs less than a microsecond where a commit costs a
hop to another thread and back. The rows follow into the database in groups behind it (`Appends`), and what is
left here when a process ends is brought in when the next one opens the store. Nothing is synced, as with any
commit of the log: what is safe here is safe from the process's end, not from the machine's.

Two files take turns: one is written while what the other holds is committed, after which that is wiped. A
record is a header (length of the body, checksum, turn_key, first_seq, last_seq) and the body of the row. Behind
the last one are zeros, or what was torn when the process ended; neither has a checksum that fits.
"""

import mmap
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from app.store.events import AppendRow

SEGMENT_BYTES = 512 * 1024
"""What a file holds before it grows."""
ROTATE_BYTES = 128 * 1024
"""From so much on, the other file is written as soon as it is free."""
MAX_BYTES = 64 * 1024 * 1024
"""What both files may hold that is not in the database."""
_HEADER = struct.Struct("<IIQQQ")
_SEED = 0x7475726E
"""So that zeros have no checksum that fits."""


class JournalFull(Exception):
    """The database lags so far behind that nothing more is taken."""


class Segment:
    """One file. Its room is taken from the disk before it is written: mapped memory refuses nothing."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._room = SEGMENT_BYTES
        _take_room(self._fd, 0, SEGMENT_BYTES)
        self._memory = mmap.mmap(self._fd, SEGMENT_BYTES)
        self.used = 0
        self.through = 0
        """The number of the last group of which it holds rows."""

    def write(self, row: AppendRow) -> None:
        """Raises OSError if the disk has no room."""
        turn_key, first, last, body = row
        begin = self.used + _HEADER.size
        end = begin + len(body)
        if end > self._room:
            self._grow(end)
        self._memory[begin:end] = body
        _HEADER.pack_into(self._memory, self.used, len(body), _checksum(row), turn_key, first, last)
        self.used = end

    def wipe(self) -> None:
        if self._room > SEGMENT_BYTES:
            self._memory.resize(SEGMENT_BYTES)
            self._room = SEGMENT_BYTES
        used = min(self.used, SEGMENT_BYTES)
        self._memory[:used] = bytes(used)
        self.used = 0

    def close(self) -> None:
        self._memory.close()
        os.close(self._fd)

    def _grow(self, needed: int) -> None:
        room = max(2 * self._room, needed)
        _take_room(self._fd, self._room, room)
        self._memory.resize(room)
        self._room = room


class Journal:
    """Belongs to the thread of the event loop."""

    def __init__(self, database: Path) -> None:
        """Empties the files beside the database: read what is `left_behind` before. Raises OSError."""
        self._current, spare = (Segment(path) for path in paths(database))
        self._spare: Segment | None = spare
        self._sealed: Segment | None = None

    @property
    def used(self) -> int:
        """Bytes that the file under way holds."""
        return self._current.used

    def write(self, rows: Sequence[AppendRow]) -> None:
        """Keep rows. When this returns, no end of the process loses them. Raises OSError, or JournalFull."""
        if self._current.used + (self._sealed.used if self._sealed else 0) > MAX_BYTES:
            raise JournalFull
        for row in rows:
            self._current.write(row)

    def grouped(self, group: int) -> None:
        """All rows so far are on their way into the database, with this group and those before it."""
        self._current.through = group
        if self._current.used >= ROTATE_BYTES:
            self._rotate()

    def committed(self, group: int, *, all_quiet: bool) -> None:
        """The database has the rows of the groups up to this one: wipe what they alone fill."""
        if self._sealed is not None and self._sealed.through <= group:
            self._sealed.wipe()
            self._spare, self._sealed = self._sealed, None
        if all_quiet:
            self._current.wipe()

    def close(self, *, wipe: bool) -> None:
        """`wipe`: the database has all of it."""
        for segment in (self._current, self._sealed, self._spare):
            if segment is not None:
                if wipe:
                    segment.wipe()
                segment.close()

    def _rotate(self) -> None:
        """Write to the other file from now on, if that is free."""
        if self._spare is not None:
            self._current, self._sealed, self._spare = self._spare, self._current, None


def paths(database: Path) -> tuple[Path, Path]:
    return database.with_name(f"{database.name}-events-0"), database.with_name(f"{database.name}-events-1")


def left_behind(database: Path) -> list[AppendRow]:
    """The rows of an earlier process, in the order of each turn."""
    rows = [row for path in paths(database) if path.exists() for row in _rows(path.read_bytes())]
    return sorted(rows, key=lambda row: row[:2])


def _checksum(row: AppendRow) -> int:
    turn_key, first, last, body = row
    return zlib.crc32(body, (turn_key ^ first << 8 ^ last << 16 ^ _SEED) & 0xFFFFFFFF)


def _take_room(fd: int, begin: int, end: int) -> None:
    zeros = bytes(SEGMENT_BYTES)
    while begin < end:
        begin += os.pwrite(fd, zeros[: end - begin], begin)


def _rows(data: bytes) -> Iterator[AppendRow]:
    at = 0
    while at + _HEADER.size <= len(data):
        size, checksum, *place = _HEADER.unpack_from(data, at)
        begin = at + _HEADER.size
        row = (place[0], place[1], place[2], data[begin : begin + size])
        if len(row[3]) < size or _checksum(row) != checksum:
            return
        yield row
        at = begin + size
