"""Server-sent events, from bytes to frames (WHATWG HTML, section 9.2.6), for a peer that is not to be trusted.

Incremental and byte-exact: a line ends at LF, CR LF or CR and nowhere else. U+2028 and U+0085 are text, also
when a read cuts them in two, which is why nothing here decodes.
"""

from typing import Final

BOM: Final = b"\xef\xbb\xbf"
Frame = tuple[bytes, bytes]
"""The event's name (empty if it has none) and its data, never empty."""


class FrameTooLarge(Exception):
    """A frame is larger than allowed; the message says how large it may be."""


class FrameReader:
    """Feed it what the socket gave; it returns the frames that are whole.

    Comments, `id`, `retry` and frames with blank data (keepalives) are left out. Raises FrameTooLarge as soon
    as a frame exceeds `max_frame_bytes`, before it is whole.
    """

    def __init__(self, max_frame_bytes: int) -> None:
        self._limit = max_frame_bytes
        self._tail: list[bytes] = []
        self._tail_size = 0
        self._name = b""
        self._data: list[bytes] = []
        self._data_size = 0
        self._after_cr = False
        self._start: bytes | None = b""

    def feed(self, chunk: bytes) -> list[Frame]:
        if chunk.endswith(b"\n\n") and (frame := self._only_frame(chunk)) is not None:
            return [frame]
        if self._start is not None:
            chunk = self._without_bom(chunk)
        if self._after_cr or b"\r" in chunk:
            chunk = self._with_lf_only(chunk)
        if b"\n" not in chunk:
            self._keep(chunk)
            return []
        lines = chunk.split(b"\n")
        if self._tail:
            lines[0] = b"".join((*self._tail, lines[0]))
            self._tail.clear()
            self._tail_size = 0
        self._keep(lines.pop())
        return self._frames(lines)

    def _only_frame(self, chunk: bytes) -> Frame | None:
        """The frame that a chunk is if it is one, whole and plain, as a paced server sends them."""
        if self._tail or self._data or self._name or self._after_cr or self._start is not None:
            return None
        name, separator, line = chunk[:-2].rpartition(b"\n")
        if separator and (not name.startswith(b"event: ") or b"\n" in name):
            return None
        if not line.startswith(b"data: {") or len(line) > self._limit or b"\r" in chunk:
            return None
        return name[7:].strip(), line[6:]

    def finish(self) -> list[Frame]:
        """The stream has ended. A last frame without its blank line is handed out too: the specification
        drops it, but servers do forget the line, and whoever reads the frame sees whether it is whole."""
        held = self._start or b""
        self._start = None
        tail = held + b"".join(self._tail)
        self._tail.clear()
        return self._frames([tail, b""])

    def _frames(self, lines: list[bytes]) -> list[Frame]:
        frames: list[Frame] = []
        for line in lines:
            if not line:
                if self._data:
                    self._dispatch(frames)
                self._name = b""
            elif line.startswith(b"data:"):
                self._add(line[6:] if line.startswith(b"data: ") else line[5:])
            elif line.startswith(b"event:"):
                self._name = line[6:].strip()
        return frames

    def _add(self, data: bytes) -> None:
        if self._data:
            self._data_size += 1  # the line end that joins them: blank lines, too, are kept
        self._data.append(data)
        self._data_size += len(data)
        self._check(self._data_size)

    def _dispatch(self, frames: list[Frame]) -> None:
        data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        self._data.clear()
        self._data_size = 0
        if data and not data.isspace():
            frames.append((self._name, data))

    def _keep(self, rest: bytes) -> None:
        if rest:
            self._tail.append(rest)
            self._tail_size += len(rest)
            self._check(self._tail_size + self._data_size)

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise FrameTooLarge(f"a frame of more than {self._limit} bytes")

    def _with_lf_only(self, chunk: bytes) -> bytes:
        """A CR ends its line at once; the LF that belongs to it may come with the next read."""
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_cr = False
        if chunk:
            self._after_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _without_bom(self, chunk: bytes) -> bytes:
        held = (self._start or b"") + chunk
        if len(held) < len(BOM) and BOM.startswith(held):
            self._start = held
            return b""
        self._start = None
        return held.removeprefix(BOM)
