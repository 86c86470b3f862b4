"""Which reply a request gets: scripts by model name, so that turns and tests side by side do not mix."""

from collections.abc import Callable
from typing import Any

from pydantic import Field

from tests.upstream.brain import Seen
from tests.upstream.reply import DEFAULT_REPLY, Reply, ScriptModel

ANY_MODEL = "*"
Brain = Callable[[Seen], Reply | dict[str, Any]]


class Script(ScriptModel):
    """Replies for the requests that name `model`, consumed in order; `then` answers what comes after them.

    `strict`: a request whose history a strict provider refuses is answered with its 400.
    """

    model: str = ANY_MODEL
    replies: list[Reply] = Field(default_factory=list)
    then: Reply = DEFAULT_REPLY
    strict: bool = True


class Scripts:
    def __init__(self, brains: dict[str, Brain] | None = None) -> None:
        self._scripts: dict[str, Script] = {}
        self._left: dict[str, list[Reply]] = {}
        self._brains = dict(brains or {})

    def add(self, script: Script) -> None:
        """Append the script's replies to what its model still has to say."""
        self._scripts[script.model] = script
        self._left.setdefault(script.model, []).extend(script.replies)

    def reset(self) -> None:
        self._scripts.clear()
        self._left.clear()

    def strict(self, model: str) -> bool:
        return self._script(model).strict

    def next_reply(self, request: dict[str, Any], text: str) -> Reply:
        """The first reply left for the request's model that `text`, the request's body, may have."""
        model = str(request.get("model"))
        for name in (model, ANY_MODEL):
            left = self._left.get(name, [])
            for index, reply in enumerate(left):
                if reply.when is None or reply.when in text:
                    return left.pop(index)
        brain = self._brains.get(model) or self._brains.get(ANY_MODEL)
        if brain and model not in self._scripts:
            return Reply.model_validate(brain(Seen.of(request)))
        return self._script(model).then

    def _script(self, model: str) -> Script:
        return self._scripts.get(model) or self._scripts.get(ANY_MODEL) or Script()
