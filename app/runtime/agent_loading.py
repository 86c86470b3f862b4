"""Finds the agents that `TURNWIRE_AGENTS` lists, each as `module:attribute`."""

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agents import Agent

from app.runtime.workflow import Workflow

Runnable = Agent[Any] | Workflow
"""What can be registered and run."""
RUNNABLE = (Agent, Workflow)

SETTING = "TURNWIRE_AGENTS"
_TAKEN_MODULES = {
    "agents": "the SDK's import name",
    "app": "this service's import name",
}


class RegistryError(Exception):
    """The agents cannot be served as they are configured; a line for each part that is wrong."""


@dataclass(frozen=True, slots=True)
class Found:
    """A runnable, and the part of the setting that led to it."""

    runnable: Runnable
    source: str


async def load(specs: Sequence[str]) -> list[Found]:
    """What each `module:attribute` names: an agent, a list or dict of them, or a function, sync or async,
    that returns one of these. Modules are found in the current folder and on PYTHONPATH.

    Raises RegistryError with every part that leads nowhere, and what was found instead.
    """
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    found: list[Found] = []
    problems: list[str] = []
    for spec in specs:
        try:
            found += [Found(runnable, spec) for runnable in await _load(spec)]
        except RegistryError as error:
            problems.append(f"{SETTING}: {spec!r}: {error}")
    if problems:
        raise RegistryError("\n".join(problems))
    return found


async def _load(spec: str) -> list[Runnable]:
    module, colon, attribute = spec.partition(":")
    if not module or not colon or not attribute:
        raise RegistryError("this is not module:attribute")
    value = _attribute(_import(module), module, attribute)
    if callable(value) and not isinstance(value, RUNNABLE):
        value = await _called(value, attribute)
    return _runnables(value, attribute)


def _import(module: str) -> Any:
    root = module.partition(".")[0]
    if root in _TAKEN_MODULES:
        raise RegistryError(f"{root!r} is {_TAKEN_MODULES[root]}: give your module another name")
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise RegistryError(
                f"there is no module {error.name!r} in the current folder or on PYTHONPATH"
            ) from None
        raise RegistryError(f"importing {module!r} failed: {_last_line(error)}") from error
    except (Exception, SystemExit) as error:
        raise RegistryError(f"importing {module!r} failed: {_last_line(error)}") from error


def _attribute(value: Any, module: str, attribute: str) -> Any:
    for name in attribute.split("."):
        try:
            value = getattr(value, name)
        except AttributeError:
            known = sorted(n for n, v in vars(sys.modules[module]).items() if isinstance(v, RUNNABLE))
            hint = f" (its agents: {', '.join(known)})" if known else ""
            raise RegistryError(f"{module!r} has no attribute {attribute!r}{hint}") from None
    return value


async def _called(function: Callable[..., Any], name: str) -> Any:
    if isinstance(function, type) and not issubclass(function, Workflow):
        raise RegistryError(f"{name!r} is the class {function.__name__}, {_EXPECTED}")
    try:
        inspect.signature(function).bind()
    except TypeError:
        raise RegistryError(f"{name!r} is a function that needs arguments, it is called without any") from None
    except ValueError:
        pass  # a function of C without a signature: calling it will tell
    try:
        value = function()
        return await value if inspect.isawaitable(value) else value
    except (Exception, SystemExit) as error:
        raise RegistryError(f"calling {name!r} failed: {_last_line(error)}") from error


_EXPECTED = "expected an Agent, a list or dict of them, or a function that returns one of these"


def _runnables(value: Any, name: str) -> list[Runnable]:
    if isinstance(value, RUNNABLE):
        return [value]
    if isinstance(value, Mapping):
        members = list(value.values())
    elif isinstance(value, list | tuple):
        members = list(value)
    else:
        raise RegistryError(f"{name!r} is {_kind(value)}, {_EXPECTED}")
    if not members:
        raise RegistryError(f"{name!r} is an empty {type(value).__name__}, {_EXPECTED}")
    for member in members:
        if not isinstance(member, RUNNABLE):
            raise RegistryError(f"{name!r} holds {_kind(member)}, {_EXPECTED}")
    return members


def _kind(value: Any) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"


def _last_line(error: BaseException) -> str:
    return traceback.format_exception_only(error)[-1].strip()
