"""The files of artifacts: one folder, each file named by its artifact's id and by nothing else. Blocking."""

import os
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from app.domain.ids import ArtifactId

_ID = re.compile(r"art_[A-Za-z0-9]{1,64}")
_UNFINISHED = ".part"


class ArtifactFiles:
    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    def path(self, artifact_id: ArtifactId) -> Path:
        if not _ID.fullmatch(artifact_id):
            raise ValueError("not the id of an artifact")
        return self._folder / artifact_id

    def write(self, artifact_id: ArtifactId, content: bytes) -> None:
        """The file is whole or not there; it is on the disk when this returns."""
        path = self.path(artifact_id)
        unfinished = path.with_name(path.name + _UNFINISHED)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(descriptor)
            os.rename(unfinished, path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        self._sync_folder()

    def read(self, artifact_id: ArtifactId, size: int) -> Iterator[bytes]:
        """The content in pieces. Raises FileNotFoundError with the first."""
        descriptor = os.open(self.path(artifact_id), os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as file:
            while piece := file.read(size):
                yield piece

    def remove(self, artifact_ids: Iterable[ArtifactId]) -> None:
        for artifact_id in artifact_ids:
            self.path(artifact_id).unlink(missing_ok=True)

    def names(self) -> list[str]:
        """All that lies in the folder, unfinished files included."""
        with suppress(FileNotFoundError):
            return os.listdir(self._folder)
        return []

    def remove_names(self, names: Collection[str]) -> None:
        """Remove entries of the folder as `names` told them."""
        for name in names:
            with suppress(FileNotFoundError, IsADirectoryError):
                (self._folder / name).unlink()

    def _sync_folder(self) -> None:
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
