"""How many turns may be under way, in all and of one caller: what is being admitted or answered counts."""

from collections.abc import Iterator
from contextlib import contextmanager

from app.domain.caller import Caller
from app.domain.turn import TurnStatus
from app.errors import TooManyTurns
from app.turns.execution import Execution, TurnLimits


class Places:
    """Each is held from the moment in which a turn is let in until it is one of the live turns."""

    def __init__(self, execution: Execution, limits: TurnLimits) -> None:
        self._execution = execution
        self._limits = limits
        self._held: dict[str, int] = {}

    @contextmanager
    def for_new(self, caller: Caller) -> Iterator[None]:
        """For a turn that is admitted. Turns that wait in a queue count too. Raises TooManyTurns."""
        with self._place(caller, None):
            yield

    @contextmanager
    def for_resumed(self, caller: Caller) -> Iterator[None]:
        """For a paused turn that goes on. Raises TooManyTurns.

        Only turns that run count: one that waits may wait for this very turn, and would never make room.
        """
        with self._place(caller, "running"):
            yield

    @contextmanager
    def _place(self, caller: Caller, counted: TurnStatus | None) -> Iterator[None]:
        self._check(caller, counted)
        self._held[caller.name] = self._held.get(caller.name, 0) + 1
        try:
            yield
        finally:
            self._held[caller.name] -= 1
            if not self._held[caller.name]:
                del self._held[caller.name]

    def _check(self, caller: Caller, counted: TurnStatus | None) -> None:
        limits, count = self._limits, self._execution.count
        if count(status=counted) + sum(self._held.values()) >= limits.max_turns:
            raise TooManyTurns(
                f"{_turns(limits.max_turns)} under way, as many as the service takes at once. Try again in a "
                "moment.",
                retry_after_s=1,
            )
        if not limits.max_turns_per_caller:
            return
        own = count(caller.name, status=counted) + self._held.get(caller.name, 0)
        if own >= limits.max_turns_per_caller:
            raise TooManyTurns(
                f"{_turns(limits.max_turns_per_caller)} of yours under way, as many as one caller may have at "
                "once. Wait until one has ended.",
                retry_after_s=1,
            )


def _turns(count: int) -> str:
    return "1 turn is" if count == 1 else f"{count} turns are"
