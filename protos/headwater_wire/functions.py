"""Functions of one's own: entry points of installed packages, by their names.

A package offers one in its metadata, under the group `headwater.functions`, and a manifest names it as
`function:NAME`. Code never comes from a manifest or a message: a name only chooses among what is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points

from headwater.aggregates import UserDefined
from headwater.errors import Invalid, Problem

GROUP = "headwater.functions"


class UnusableFunction(Invalid):
    """An entry point that is there and holds no function."""


def _installed() -> Iterable[EntryPoint]:
    return entry_points(group=GROUP)


class Functions:
    """Finds a function by its name; None if no package offers one. Each is loaded once, when asked for."""

    def __init__(self, installed: Callable[[], Iterable[EntryPoint]] = _installed) -> None:
        self._installed = installed
        self._loaded: dict[str, UserDefined | None] = {}

    def __call__(self, name: str) -> UserDefined | None:
        if name not in self._loaded:
            # The same entry point may be found twice, where a path is listed twice.
            named = [each for each in self._installed() if each.name == name]
            offered = {(each.value, _distribution(each)): each for each in named}
            if len(offered) > 1:
                held = " and ".join(f"{value} of {package}" for value, package in sorted(offered))
                raise _unusable(name, f"is offered more than once: {held}", "uninstall all but one")
            self._loaded[name] = next((_load(name, each) for each in offered.values()), None)
        return self._loaded[name]


def _load(name: str, found: EntryPoint) -> UserDefined:
    where = f"the entry point {name} = {found.value} of {_distribution(found)}"
    try:
        function = found.load()
    # A package may raise anything when it is imported.
    except (Exception, SystemExit) as error:
        message = f"{where} cannot be loaded ({type(error).__name__}: {error})"
        raise _unusable(name, message, "mend or reinstall the package") from error
    if not isinstance(function, UserDefined):
        held = f"{where} is a {type(function).__name__}"
        raise _unusable(name, held, "let it name an object of headwater.aggregates.UserDefined")
    return function


def _unusable(name: str, message: str, remedy: str) -> UnusableFunction:
    return UnusableFunction("a function cannot be used", [Problem(f"function:{name}", message, remedy)])


def _distribution(found: EntryPoint) -> str:
    return f"{found.dist.name} {found.dist.version}" if found.dist is not None else "no distribution"
