"""The journal: events that are not in the database yet, kept so that no end of the process loses them.

The event loop writes it itself, once a pass: that costs two microseconds where a commit costs a hop to another
thread and back. The rows follow into the database in groups behind it (`Appends`), and what is left here when
a process ends is brought in when the next one opens the store. Nothing is synced, as with any commit of the
log: what is safe here is safe from the process's end, not from the machine's.

Two files take turns: one is written while what the other holds is committed, after which that is emptied. A
record is a header (length of the body, checksum of what follows, turn_key, first_seq, last_seq) and the body of
the row. A record that was torn, which only the last one can be, ends the file.
"""

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.store.events import AppendRow

ROTATE_BYTES = 64 * 1024
_HEADER = struct.Struct("<II")
_PLACE = struct.Struct("<QQQ")
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


@dataclass(slots=True, eq=False)
class Segment:
    """One file. `through` is the number of the last group of which it holds rows."""

    fd: int
    size: int = 0
    through: int = 0

    def write(self, data: bytes) -> None:
        """All of it or nothing. Raises OSError."""
        written = os.write(self.fd, data)
        if written < len(data):  # there is no room left
            os.ftruncate(self.fd, self.size)
            raise OSError("the journal was written in part")
        self.size += written

    def clear(self) -> None:
        os.ftruncate(self.fd, 0)
        self.size = 0


class Journal:
    """Belongs to the thread of the event loop, but for `Segment.clear` of a sealed file."""

    def __init__(self, database: Path) -> None:
        """Opens the files beside the database and empties them: read what they hold before. Raises OSError."""
        self._current, spare = (Segment(os.open(path, _FLAGS, 0o600)) for path in paths(database))
        self._spare: Segment | None = spare
        self._sealed: Segment | None = None
        for segment in (self._current, spare):
            segment.clear()

    @property
    def is_empty(self) -> bool:
        """True if nothing was written since the last change of files."""
        return self._current.size == 0

    def write(self, rows: Sequence[AppendRow]) -> None:
        """Keep rows. When this returns, the end of the process does not lose them. Raises OSError."""
        self._current.write(b"".join([_record(row) for row in rows]))

    def grouped(self, group: int) -> None:
        """All rows so far are on their way into the database, with this group and those before it."""
        self._current.through = group
        if self._current.size >= ROTATE_BYTES:
            self.rotate()

    def rotate(self) -> None:
        """Write to the other file from now on, if that is free."""
        if self._spare is not None:
            self._current, self._sealed, self._spare = self._spare, self._current, None

    def obsolete(self, committed: int) -> Segment | None:
        """The sealed file, once the groups up to that number are committed: to be cleared, then `freed`."""
        sealed = self._sealed
        if sealed is None or sealed.through > committed:
            return None
        self._sealed = None
        return sealed

    def freed(self, segment: Segment) -> None:
        self._spare = segment

    def close(self, *, clear: bool) -> None:
        for segment in (self._current, self._sealed, self._spare):
            if segment is not None:
                if clear:
                    segment.clear()
                os.close(segment.fd)


def paths(database: Path) -> tuple[Path, Path]:
    return database.with_name(f"{database.name}-events-0"), database.with_name(f"{database.name}-events-1")


def left_behind(database: Path) -> list[AppendRow]:
    """The rows of an earlier process, in the order of each turn."""
    rows = [row for path in paths(database) if path.exists() for row in _rows(path.read_bytes())]
    return sorted(rows, key=lambda row: row[:2])


def _record(row: AppendRow) -> bytes:
    turn_key, first, last, body = row
    place = _PLACE.pack(turn_key, first, last)
    return b"".join((_HEADER.pack(len(body), zlib.crc32(body, zlib.crc32(place))), place, body))


def _rows(data: bytes) -> Iterator[AppendRow]:
    at = 0
    while at + _HEADER.size + _PLACE.size <= len(data):
        size, checksum = _HEADER.unpack_from(data, at)
        begin = at + _HEADER.size
        end = begin + _PLACE.size + size
        if end > len(data) or zlib.crc32(data[begin:end]) != checksum:
            return
        yield (*_PLACE.unpack_from(data, begin), data[begin + _PLACE.size : end])
        at = end
