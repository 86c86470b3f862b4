"""What a file may be called, and of what kind it is."""

import re
import unicodedata
from mimetypes import MimeTypes

from app.domain.ports import ArtifactRefused

MAX_NAME_BYTES = 255
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,126}/[A-Za-z0-9][A-Za-z0-9.+_-]{0,126}")
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Control characters, those that turn the direction of text, lone surrogates, line separators."""

# Only what Python itself knows: the same name gives the same type on every machine.
_TYPES = MimeTypes(filenames=())
_TYPES.add_type("text/markdown", ".md")


def checked(name: str) -> str:
    """The name as it was given. Raises ArtifactRefused if it is empty, a path, too long, or holds what cannot
    be seen: nothing is replaced, so that two files never end up with one name."""
    if not name or name in (".", "..") or "/" in name or "\\" in name:
        raise ArtifactRefused(f"{name[:80]!r} is no name of a file")
    if any(unicodedata.category(character) in _UNSEEN for character in name):
        raise ArtifactRefused(f"{name[:80]!r} holds characters that cannot be seen")
    if len(name.encode()) > MAX_NAME_BYTES:
        raise ArtifactRefused(f"{name[:80]!r}… has more than {MAX_NAME_BYTES} bytes")
    return name


def media_type_of(name: str, content: bytes, given: str | None = None) -> str:
    """The given one if it is one, else by the name, else `text/plain` for text and `application/octet-stream`
    for everything else."""
    if given is not None and _MEDIA_TYPE.fullmatch(given):
        return given.lower()
    guessed, encoding = _TYPES.guess_type(name)
    if encoding is not None:
        return "application/gzip" if encoding == "gzip" else "application/octet-stream"
    return guessed or ("text/plain" if _is_text(content) else "application/octet-stream")


def _is_text(content: bytes) -> bool:
    try:
        return "\0" not in content.decode()
    except UnicodeDecodeError:
        return False
