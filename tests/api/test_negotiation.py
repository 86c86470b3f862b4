import pytest

from app.api.negotiation import choose
from app.errors import NotAcceptable

FORMS = ("text/event-stream", "application/json", "text/plain")


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        (None, "text/event-stream"),
        ("", "text/event-stream"),
        ("*/*", "text/event-stream"),
        ("*", "text/event-stream"),
        ("text/event-stream", "text/event-stream"),
        ("Text/Event-Stream; charset=utf-8", "text/event-stream"),
        ("application/json", "application/json"),
        ("text/plain", "text/plain"),
        ("text/*", "text/event-stream"),
        ("application/json, text/plain, */*", "application/json"),
        ("text/plain, application/json", "text/plain"),
        ("text/plain;q=0.5, application/json;q=0.9", "application/json"),
        ("application/json;q=0.5, */*;q=0.1", "application/json"),
        ("text/event-stream;q=0, */*", "application/json"),
        ("text/html, application/xhtml+xml, */*;q=0.8", "text/event-stream"),
        ("application/json; q = 0.2 , text/plain ; q=0.1", "application/json"),
        ("application/json;q=nonsense", "application/json"),
    ],
)
def test_the_highest_quality_wins_and_then_the_order(accept: str | None, chosen: str) -> None:
    assert choose(accept, FORMS) == chosen


@pytest.mark.parametrize(
    "accept", ["text/html", "application/json;q=0", "image/*, text/html", "*/*;q=0", "json"]
)
def test_what_we_do_not_have_is_not_acceptable(accept: str) -> None:
    with pytest.raises(NotAcceptable, match="text/event-stream, application/json, text/plain"):
        choose(accept, FORMS)
