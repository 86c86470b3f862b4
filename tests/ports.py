"""A port that stays free until somebody who is told of it listens there."""

import random
import socket
from collections.abc import Iterator

BELOW_THE_KERNELS_OWN = range(12_000, 32_000)
"""A port of the kernel's choice, given up, is soon another connection's: these are chosen by nobody but us."""


def unused_port() -> int:
    return next(port for port in _candidates() if _is_free(port))


def _candidates() -> Iterator[int]:
    while True:
        yield random.choice(BELOW_THE_KERNELS_OWN)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
