"""How long to wait before a request is sent again: exponential, jittered, and as long as the server asks."""

from typing import Final

FIRST_S: Final = 0.5
LONGEST_S: Final = 8.0


def delay_s(retry: int, retry_after_s: float | None, chance: float) -> float:
    """Seconds before retry number `retry` (from 1); `chance` in 0..1 spreads them by a quarter each way.

    `Retry-After` is honoured in full: who asks too early is refused again.
    """
    if retry_after_s is not None:
        return retry_after_s + 0.25 * FIRST_S * chance
    return min(LONGEST_S, FIRST_S * 2.0 ** (retry - 1)) * (0.75 + chance / 2)
