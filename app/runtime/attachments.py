"""Images and files in a caller's input: where their bytes are, and what an upstream can take of them.

A source is an https URL (which the provider fetches, never the service), a `data:` URL or base64 data, or the
id of a file that the provider holds. Every function takes what the caller sent and returns what goes on, or
raises BadSource with what is wrong; messages never repeat a URL or data, which may hold credentials.
"""

import binascii
import mimetypes
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

MAX_URL_CHARS = 8_192
MAX_NAME_CHARS = 255

_UNSAFE_IN_URL = re.compile(r"[\x00-\x20\x7f-\x9f\s\\]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_TEXT_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_FILE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}")
_DATA_URL = re.compile(r"data:([^,;]*)((?:;[^,;]*)*),", re.IGNORECASE)
_TEXT_TYPES = re.compile(
    r"text/.+|application/(json|.+\+json|xml|.+\+xml|yaml|x-yaml|toml|csv|javascript|x-ndjson|sql|x-sh)"
)
_CHARSETS = {
    "utf-8": "utf-8-sig",
    "utf8": "utf-8-sig",
    "us-ascii": "utf-8-sig",
    "utf-16": "utf-16",
    "iso-8859-1": "latin-1",
    "windows-1252": "cp1252",
}


class BadSource(Exception):
    """`unsupported`: it is well-formed, but empty, undecodable, or nothing that the upstream takes."""

    def __init__(self, message: str, *, unsupported: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.unsupported = unsupported


@dataclass(frozen=True, slots=True)
class Data:
    """Bytes that came with the input. `encoded` is their base64, `media_type` lower case, "" if unknown."""

    media_type: str
    charset: str
    encoded: str
    content: bytes

    @property
    def url(self) -> str:
        return f"data:{self.media_type or 'application/octet-stream'};base64,{self.encoded}"


def is_data_url(value: str) -> bool:
    return value[:5].lower() == "data:"


def checked_url(value: str) -> str:
    """An absolute https URL with a host, at most 8,192 characters, without spaces or control characters."""
    if len(value) > MAX_URL_CHARS:
        raise BadSource(f"the URL is longer than {MAX_URL_CHARS} characters")
    if _UNSAFE_IN_URL.search(value):
        raise BadSource("the URL holds a space, a backslash or a control character")
    try:
        parts = urlsplit(value)
        usable = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise BadSource("this is not a URL") from None
    if not usable:
        raise BadSource("only https: and data: URLs are taken")
    return value


def checked_file_id(value: str) -> str:
    if not _FILE_ID.fullmatch(value):
        raise BadSource("this is not a file id: 1 to 128 of A-Z a-z 0-9 . _ : -")
    return value


def checked_name(value: str) -> str:
    """A file's name: 1 to 255 characters, no path, no control characters."""
    if not value.strip() or len(value) > MAX_NAME_CHARS:
        raise BadSource(f"a file's name has 1 to {MAX_NAME_CHARS} characters")
    if _CONTROL.search(value) or "/" in value or "\\" in value:
        raise BadSource("a file's name is no path and holds no control characters")
    return value


def data_of_url(value: str) -> Data:
    """The bytes of a `data:` URL, which must be base64."""
    head = _DATA_URL.match(value)
    if head is None:
        raise BadSource("the data: URL has no comma")
    parameters = [p.strip().lower() for p in head[2].split(";")[1:]]
    if "base64" not in parameters:
        raise BadSource("the data: URL is not base64")
    media_type = head[1].strip().lower()
    if media_type and not _MEDIA_TYPE.fullmatch(media_type):
        raise BadSource("the data: URL has no plausible media type")
    charset = next((p.removeprefix("charset=").strip('"') for p in parameters if p.startswith("charset=")), "")
    return _data(value[head.end() :], media_type, charset)


def data_of_base64(value: str, name: str | None) -> Data:
    """The bytes of bare base64; the media type is what the file's name says, else what the bytes begin with."""
    data = _data(value, mimetypes.guess_type(name)[0] or "" if name else "", "")
    if data.media_type:
        return data
    if data.content.startswith(b"%PDF-"):
        return Data("application/pdf", "", data.encoded, data.content)
    media_type = "text/plain" if _as_text(data.content, "utf-8-sig") is not None else ""
    return Data(media_type, "", data.encoded, data.content)


def _data(encoded: str, media_type: str, charset: str) -> Data:
    try:
        content = binascii.a2b_base64(encoded.encode("ascii"), strict_mode=True)
    except ValueError:
        raise BadSource("the data is not base64", unsupported=True) from None
    if not content:
        raise BadSource("the data is empty", unsupported=True)
    return Data(media_type, charset, encoded, content)


def text_of(data: Data) -> str | None:
    """The text of a file if it is one, by its media type or because it reads as UTF-8; None if it is not.

    Raises BadSource if it says that it is text and does not decode, or if nothing visible is in it.
    """
    declared = _TEXT_TYPES.fullmatch(data.media_type) is not None
    if not declared and data.media_type not in ("", "application/octet-stream"):
        return None
    text = _as_text(data.content, _codec(data))
    if text is None and declared:
        raise BadSource("the file does not decode as text", unsupported=True)
    if text is not None and not text.strip():
        raise BadSource("the file is empty", unsupported=True)
    return text


def _codec(data: Data) -> str:
    if data.content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    return _CHARSETS.get(data.charset, "utf-8-sig")


def _as_text(content: bytes, codec: str) -> str | None:
    try:
        text = content.decode(codec)
    except UnicodeDecodeError:
        return None
    return None if _TEXT_CONTROL.search(text) else text


def default_name(data: Data) -> str:
    """A name for a file that came without one: providers ask for it."""
    return "file" + (mimetypes.guess_extension(data.media_type) or "")


def as_text_part(name: str | None, text: str) -> str:
    """How a text file reads in a message: its text between marks that carry its name."""
    shown = (name or "file").replace('"', "'")
    return f'<file name="{shown}">\n{text}\n</file>'


def checked_image_url(value: str) -> str:
    """An https URL, or a `data:` URL that holds an image."""
    if not is_data_url(value):
        return checked_url(value)
    data = data_of_url(value)
    if not data.media_type.startswith("image/"):
        raise BadSource("the data: URL's media type is not an image's", unsupported=True)
    return data.url
