"""The Markdown fence that models put around JSON although nobody asked for one."""

FENCE = "```"


def fenced(text: str) -> str | None:
    """What is inside, if the text is one fence and nothing around it; None if it is anything else.

    No regular expression: on a model's output of many line breaks one takes time that grows with their square.
    """
    text = text.strip()
    head, newline, body = text.removeprefix(FENCE).partition("\n")
    if not newline or not text.startswith(FENCE) or not body.endswith(FENCE):
        return None
    if not all(letter.isalnum() or letter in "_-" for letter in head.rstrip()):
        return None
    return body.removesuffix(FENCE).rstrip()
