"""One mapping of a document and the rules for its fields: whatever is wrong is collected, with its path."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from headwater.durations import human, microseconds
from headwater.errors import Invalid, Problem
from headwater.topology.tree import Selector
from headwater.windows import LENGTH_LIMIT

LABEL_LIMIT = 63
SUBDOMAIN_LIMIT = 253
TEXT_LIMIT = 1_024
SELECTOR_LIMIT = 16
DURATION_LIMIT = 32

# What is wrong with a value, and the remedy.
Wrong = tuple[str, str]


class InvalidTopology(Invalid):
    """A manifest that cannot be taken."""


class Section:
    """One mapping of a document. It collects problems and knows at the end which fields nobody asked for."""

    def __init__(self, given: Any, path: str, problems: list[Problem]) -> None:
        self.path, self.problems = path, problems
        self._known: list[str] = []
        self._values: dict[Any, Any] = {}
        if isinstance(given, Mapping):
            # An empty value in YAML is a null: as good as not there.
            self._values = {field: value for field, value in given.items() if value is not None}
        else:
            problems.append(Problem(path or "document", f"is {shown(given)}", "give a mapping of fields"))

    def at(self, field: str) -> str:
        return f"{self.path}.{field}" if self.path else field

    def wrong(self, field: str, message: str, remedy: str) -> None:
        self.problems.append(Problem(self.at(field), message, remedy))

    def told(self, *fields: str) -> bool:
        """Whether something is known to be wrong with one of the fields or with what is in it."""
        paths = tuple(map(self.at, fields))
        return any(problem.field.startswith(paths) for problem in self.problems)

    def __contains__(self, field: str) -> bool:
        return field in self._values

    def value(self, field: str, remedy: str = "", *, required: bool = False) -> Any:
        self._known.append(field)
        found = self._values.get(field)
        if found is None and required:
            self.wrong(field, "is missing", remedy)
        return found

    def allow(self, *fields: str) -> None:
        """Fields that stand there rightly but say nothing to us."""
        self._known += fields

    def done(self) -> None:
        """Refuse what nobody asked for."""
        for field in self._values:
            if field in self._known:
                continue
            near = get_close_matches(str(field), self._known, 1)
            remedy = (
                f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(set(self._known)))}"
            )
            self.wrong(str(field), "is not known", remedy)

    def text(
        self,
        field: str,
        rule: Callable[[str], Wrong | None] | None = None,
        *,
        required: bool = True,
        remedy: str = "give a name",
    ) -> str:
        """A string; empty if it is missing or wrong."""
        found = self.value(field, remedy, required=required)
        if found is None:
            return ""
        if wrong := text_problem(found) or (rule(found) if rule else None):
            self.wrong(field, *wrong)
            return ""
        return str(found)

    def choice(self, field: str, known: tuple[str, ...], default: str | None = None) -> str:
        """One of the known words; the first of them if it is missing or wrong."""
        listed = ", ".join(known)
        found = self.value(field, f"give one of {listed}", required=default is None)
        if found is None:
            return default or known[0]
        if found not in known:
            near = get_close_matches(str(found), known, 1)
            suggested = f" (did you mean {near[0]}?)" if near else ""
            self.wrong(field, f"is {shown(found)}", f"give one of {listed}{suggested}")
            return known[0]
        return str(found)

    def flag(self, field: str, default: bool = False) -> bool:
        found = self.value(field)
        if found is not None and not isinstance(found, bool):
            self.wrong(field, f"is {shown(found)}", "give true or false")
        return found if isinstance(found, bool) else default

    def whole(self, field: str, default: int | None, *, low: int, high: int) -> int:
        remedy = f"give a whole number from {low} to {high}"
        found = self.value(field, remedy, required=default is None)
        if found is None:
            return low if default is None else default
        if not isinstance(found, int) or isinstance(found, bool) or not low <= found <= high:
            self.wrong(field, f"is {shown(found)}", remedy)
            return low if default is None else default
        return found

    def number(self, field: str, default: float | None, fits: Callable[[float], bool], remedy: str) -> float:
        found = self.value(field, remedy, required=default is None)
        if found is None:
            return 1.0 if default is None else default
        number = _finite(found)
        if number is None or not fits(number):
            self.wrong(field, f"is {shown(found)}", remedy)
            return 1.0 if default is None else default
        return number

    def size(self, field: str, default: int, *, at_least: int) -> int:
        """Bytes: a whole number of them, or one with a unit."""
        found = self.value(field)
        if found is None:
            return default
        remedy = f"give bytes, {at_least} or more, also with a unit: {', '.join(SIZES)}"
        size = found if isinstance(found, int) and not isinstance(found, bool) else _bytes(found)
        if size is None or not at_least <= size < 1 << 63:
            self.wrong(field, f"is {shown(found)}", remedy)
            return default
        return size

    def duration(self, field: str, default: int | None, *, at_least: int) -> int:
        """Microseconds; the default, or what is allowed at least, if it is missing or wrong."""
        found = self.value(field, "give a duration such as 10s", required=default is None)
        instead = at_least if default is None else default
        if found is None:
            return instead
        if wrong := unit_problem(found):
            self.wrong(field, *wrong)
            return instead
        try:
            length = microseconds(found)
        except ValueError as error:
            self.wrong(field, str(error), "give a duration such as 10s")
            return instead
        if not at_least <= length < LENGTH_LIMIT:
            self.wrong(field, f"is {human(length)}", f"give {human(at_least)} or more")
            return instead
        return length

    def section(self, field: str, *, required: bool = False) -> Section | None:
        found = self.value(field, "give a mapping of fields", required=required)
        return None if found is None else Section(found, self.at(field), self.problems)

    def listed(self, field: str, limit: int, *, required: bool = False) -> list[Any]:
        found = self.value(field, "give a list with at least one item", required=required)
        if found is None:
            return []
        if not isinstance(found, list | tuple):
            self.wrong(field, f"is {shown(found)}", "give a list")
            return []
        if required and not found:
            self.wrong(field, "is empty", "give a list with at least one item")
        if len(found) > limit:
            self.wrong(field, f"has {len(found)} items", f"give at most {limit}")
        return list(found[:limit])

    def selector(self, field: str, *, required: bool = False) -> Selector:
        """Labels and their values, sorted."""
        found = self.value(field, "give labels, such as headwater.dev/tier: edge", required=required)
        if found is None:
            return ()
        if not isinstance(found, Mapping):
            self.wrong(field, f"is {shown(found)}", "give labels, such as headwater.dev/tier: edge")
            return ()
        if len(found) > SELECTOR_LIMIT:
            self.wrong(field, f"has {len(found)} labels", f"give at most {SELECTOR_LIMIT}")
        if required and not found:
            self.wrong(field, "is empty", "give at least one label")
        labels = []
        for name, value in found.items():
            if not isinstance(name, str) or not is_label_name(name):
                self.wrong(
                    field, f"has the label {shown(name)}", "name labels like headwater.dev/tier or tier"
                )
            elif not isinstance(value, str) or not LABEL_VALUE.fullmatch(value):
                self.wrong(
                    f"{field}[{name}]",
                    f"is {shown(value)}",
                    'give a string of at most 63 letters, digits, "-", "_" and "." (a number in quotes)',
                )
            else:
                labels.append((name, value))
        return tuple(sorted(labels))


LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
# What a Service may be called: a label that does not begin with a digit.
SERVICE = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
SUBDOMAIN = re.compile(rf"{LABEL.pattern}(\.{LABEL.pattern})*")
# The name of an environment variable.
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
# What stands behind the prefix of a label's name.
LABEL_STEM = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_NAME = re.compile(rf"((?=.{{1,{SUBDOMAIN_LIMIT}}}/){SUBDOMAIN.pattern}/)?{LABEL_STEM.pattern}")


SIZES = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


SIZE_LIMIT = 32
_SIZE = re.compile(rf"([0-9]{{1,15}})[ \t\n\f\r]*({'|'.join(SIZES)})")


def _bytes(given: Any) -> int | None:
    found = _SIZE.fullmatch(given) if isinstance(given, str) and len(given) <= SIZE_LIMIT else None
    return None if found is None else int(found[1]) * SIZES[found[2]]


def is_label_name(given: str) -> bool:
    return _LABEL_NAME.fullmatch(given) is not None


def label(limit: int) -> Callable[[str], Wrong | None]:
    """The rule for a DNS-1123 label."""

    def rule(given: str) -> Wrong | None:
        if len(given) <= limit and LABEL.fullmatch(given):
            return None
        return (
            f"is {shown(given)}",
            f'give 1 to {limit} of the characters a-z, 0-9 and "-", with neither end a "-"',
        )

    return rule


def service(limit: int) -> Callable[[str], Wrong | None]:
    """The rule for a DNS-1035 label, which the names of Services begin with."""

    def rule(given: str) -> Wrong | None:
        if len(given) <= limit and SERVICE.fullmatch(given):
            return None
        return (
            f"is {shown(given)}",
            f'give 1 to {limit} of the characters a-z, 0-9 and "-", a letter first and no "-" last',
        )

    return rule


def subdomain(given: str) -> Wrong | None:
    """The rule for the name of an object: DNS-1123 labels, parted by dots."""
    if len(given) <= SUBDOMAIN_LIMIT and SUBDOMAIN.fullmatch(given):
        return None
    return (
        f"is {shown(given)}",
        f'give 1 to {SUBDOMAIN_LIMIT} of the characters a-z, 0-9, "-" and ".", no part with a "-" at an end',
    )


def shown(given: Any) -> str:
    """A value in a message: cut, for a manifest may hold anything."""
    text = repr(given)
    return text if len(text) <= 80 else f"{text[:77]}..."


def text_problem(given: Any) -> Wrong | None:
    if not isinstance(given, str):
        return f"is {shown(given)}", "give a string (in quotes if it looks like a number)"
    if not given or len(given) > TEXT_LIMIT:
        return f"has {len(given)} characters", f"give 1 to {TEXT_LIMIT}"
    return None


def unit_problem(given: Any) -> Wrong | None:
    # A bare number would be microseconds to the engine and seconds to most who write one.
    if not isinstance(given, str):
        return f"is {shown(given)}, without a unit", "write a duration with its unit, such as 10s"
    if len(given) > DURATION_LIMIT:
        return f"has {len(given)} characters", f"write a duration with at most {DURATION_LIMIT}, such as 10s"
    return None


def _finite(given: Any) -> float | None:
    """A number as a float; None if it is none, or none that a float holds."""
    if not isinstance(given, int | float) or isinstance(given, bool):
        return None
    try:
        number = float(given)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
