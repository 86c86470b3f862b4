"""The SDK's context of a run whose past is one entry of its input: whoever asks it for the input sees items."""

from typing import Any

from agents import RunContextWrapper
from agents.items import TResponseInputItem

from app.runtime.models.past import Past


class RunContext(RunContextWrapper[Any]):
    """What tools, dynamic instructions and conditions of tools get, or what theirs is made from."""

    @classmethod
    def of(cls, context: RunContextWrapper[Any]) -> "RunContext":
        """The same context, of this kind."""
        made = cls(context.context)
        vars(made).update(vars(context))
        return made

    @property
    def turn_input(self) -> list[TResponseInputItem]:
        """The input of the step under way, in a list of its own where there is a past."""
        entries: list[Any] = vars(self)["turn_input"]
        return _items(entries) if any(isinstance(entry, Past) for entry in entries) else entries

    @turn_input.setter
    def turn_input(self, entries: list[TResponseInputItem]) -> None:
        vars(self)["turn_input"] = entries


def _items(entries: list[Any]) -> list[Any]:
    items: list[Any] = []
    for entry in entries:
        items += entry.copies if isinstance(entry, Past) else (entry,)
    return items
