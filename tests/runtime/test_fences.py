import time

import pytest

from app.runtime.fences import fenced


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ('```json\n{"a": 1}\n```', '{"a": 1}'),
        ('  ```\n{"a": 1}```  \n', '{"a": 1}'),
        ("```json \n[1]\n\n ```", "[1]"),
        ("```json\n```", ""),
        ('{"a": 1}', None),
        ('Here:\n```json\n{"a": 1}\n```', None),
        ("```not a language\n1\n```", None),
        ("```json\n1", None),
        ("```", None),
        ("``````", None),
        ("", None),
    ],
)
def test_what_is_in_a_fence(text: str, inside: str | None) -> None:
    assert fenced(text) == inside


def test_many_line_breaks_take_no_longer_than_other_text() -> None:
    began = time.thread_time()
    assert fenced("```json\n" + "\n" * 1_000_000) is None
    assert time.thread_time() - began < 1
