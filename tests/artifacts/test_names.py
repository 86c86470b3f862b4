import pytest

from app.artifacts.names import checked, media_type_of
from app.domain.ports import ArtifactRefused


@pytest.mark.parametrize(
    "name", ["findings.md", "Überblick 2.txt", ".hidden", "a..b", "-rf", "検査.pdf", "x" * 255]
)
def test_a_name_is_kept_as_it_was_given(name: str) -> None:
    assert checked(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a/b",
        "/etc/passwd",
        "..\\x",
        "a\nb",
        "a\r\nSet-Cookie: x",
        "a\0",
        "a\x7f",
        "a\u202egpj.exe",
    ],
)
def test_a_name_that_is_a_path_or_cannot_be_seen_is_refused(name: str) -> None:
    with pytest.raises(ArtifactRefused):
        checked(name)


@pytest.mark.parametrize("name", ["x" * 256, "ü" * 128, "a\udcff"])
def test_a_name_that_cannot_be_stored_is_refused(name: str) -> None:
    with pytest.raises(ArtifactRefused):
        checked(name)


@pytest.mark.parametrize(
    ("name", "content", "given", "expected"),
    [
        ("a.md", b"", None, "text/markdown"),
        ("a.json", b"\0", None, "application/json"),
        ("a.HTML", b"", None, "text/html"),
        ("a.csv.gz", b"", None, "application/gzip"),
        ("Makefile", b"all:\n", None, "text/plain"),
        ("core", b"\x7fELF\0", None, "application/octet-stream"),
        ("blob", b"\xff\xfe", None, "application/octet-stream"),
        ("a.md", b"", "Application/PDF", "application/pdf"),
        ("a.md", b"", "text/html\r\nX: y", "text/markdown"),
    ],
)
def test_the_media_type_follows_from_what_is_known(
    name: str, content: bytes, given: str | None, expected: str
) -> None:
    assert media_type_of(name, content, given) == expected
