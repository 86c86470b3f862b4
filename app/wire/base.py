"""An encoder turns log entries into the frames of one wire protocol."""

from typing import Protocol

from app.domain.events import LogEntry

Frame = bytes
"""One message as it goes over the wire, whole: what stands between two frames may be anything."""


class Encoder(Protocol):
    def encode(self, entry: LogEntry) -> list[Frame]:
        """The frames of one entry, often one, perhaps none. Entries come in order; no request need exist.

        An encoder that has encoded 1 to N goes on with N + 1 as if it had sent what came before.
        """
        ...
