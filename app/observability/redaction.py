"""What must not be read in a log: every configured secret, and whatever looks like a key."""

import json
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

MASK = "[redacted]"
SHORT = 8
"""A secret shorter than this is masked only where it stands alone: inside words it would mask half a log."""

KEY_LIKE = (
    r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{8,}",  # OpenAI, and those who took after it
    r"\bgh[opsu]_[A-Za-z0-9]{20,}",
    r"\bxox[abeprs]-[A-Za-z0-9-]{10,}",
    r"\bhf_[A-Za-z0-9]{20,}",
    r"\bdapi[0-9a-f]{32}\b",  # Databricks
    r"\bA(?:KIA|SIA)[0-9A-Z]{16}\b",
    r"\bAIza[0-9A-Za-z_-]{35}",
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?",  # a JWT
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)",
)
AFTER = (
    r"(?i:\b(?:bearer|basic)\s+)(?P<token>[A-Za-z0-9._~+/=-]{6,})",
    r"(?i:\b(?:api[-_ ]?key|access[-_]?token|auth[-_]?token|client[-_]?secret|password|passwd|secret)"
    r"[\"']?\s*[=:]\s*[\"']?)(?P<value>[^\s\"',;&}\\]{3,})",
    r"://[^\s/:@]*:(?P<password>[^\s/@]+)@",
)
"""What follows these words is masked; the words stay."""


class Redactor:
    """Masks the given secrets, in the shapes in which they are written down, and what looks like a key."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        shapes = {shape for secret in secrets if secret.strip() for shape in _shapes(secret)}
        exact = [_exact(shape) for shape in sorted(shapes, key=lambda s: (-len(s), s))]
        self._whole = re.compile("|".join((*exact, *KEY_LIKE)))
        self._after = [re.compile(pattern) for pattern in AFTER]

    def redact(self, text: str) -> str:
        text = self._whole.sub(MASK, text)
        for pattern in self._after:
            text = pattern.sub(_mask_group, text)
        return text

    def redact_value(self, value: Any) -> Any:
        """The same for whatever a log line holds; what JSON does not know becomes text."""
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, dict):
            return {self.redact(str(k)): self.redact_value(v) for k, v in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self.redact_value(v) for v in value]
        return self.redact(str(value))


def _shapes(secret: str) -> set[str]:
    """As it is, as a JSON string holds it, as a URL holds it."""
    return {secret, secret.strip(), json.dumps(secret)[1:-1], quote(secret, safe="")}


def _exact(shape: str) -> str:
    pattern = re.escape(shape)
    return pattern if len(shape) >= SHORT else rf"(?<![A-Za-z0-9]){pattern}(?![A-Za-z0-9])"


def _mask_group(match: re.Match[str]) -> str:
    start, end = match.span(match.lastindex or 0)
    whole, offset = match.group(), match.start()
    return whole[: start - offset] + MASK + whole[end - offset :]
