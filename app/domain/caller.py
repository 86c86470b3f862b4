"""Who asks: a caller known by the name of its key, narrowed to one of its users if it says so."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """The owner of conversations and turns.

    `name` is the name that stands before the key in `TURNWIRE_API_KEYS`, or `anonymous`.
    `user` is the `Turnwire-User` header; None sees everything that belongs to `name`, and what it
    creates belongs to no user.
    """

    name: str
    user: str | None = None


ANONYMOUS = Caller("anonymous")
