"""Where the pods of a layer run, and what they have of a pod template: a strict subset of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, get_args

from headwater.topology.quantities import amount
from headwater.topology.sections import (
    LABEL_VALUE,
    TEXT_LIMIT,
    VARIABLE,
    Section,
    Wrong,
    is_label_name,
    shown,
    subdomain,
)
from headwater.topology.tree import (
    Effect,
    LayerPlacement,
    Mode,
    Placement,
    Resources,
    Toleration,
)

TOLERATIONS_LIMIT = 16
SECRETS_LIMIT = 8
ENV_LIMIT = 64
ANNOTATIONS_LIMIT = 32
# An affinity is handed on as it is; an API server judges it with the pod.
AFFINITY_FIELDS = ("nodeAffinity", "podAffinity", "podAntiAffinity")
SECONDS_LIMIT = (1 << 31) - 1
# Taken by us.
OURS = "HEADWATER_"
# Bytes and cores, as Kubernetes writes quantities.
CPU = re.compile(r"[0-9]{1,6}(m|\.[0-9]{1,3})?")
MEMORY = re.compile(r"[0-9]{1,15}(Ki|Mi|Gi|Ti|k|M|G|T)?")
QUANTITIES = {"cpu": CPU, "memory": MEMORY}
# As numbers they have as many digits.
WHOLE = {"cpu": 999_999, "memory": 999_999_999_999_999}


def read_placement(section: Section | None) -> Placement:
    if section is None:
        return Placement()
    layers = [_layer(section.section(layer)) for layer in ("child", "intermediate", "root")]
    section.done()
    return Placement(*layers)


def _layer(section: Section | None) -> LayerPlacement:
    if section is None:
        return LayerPlacement()
    mode = section.choice("mode", get_args(Mode), "pool")
    found = LayerPlacement(
        "perNode" if mode == "perNode" else "pool",
        section.selector("nodeSelector"),
        _tolerations(section),
        _affinity(section),
        section.text("priorityClassName", subdomain, required=False) or None,
        _secrets(section),
        _env(section),
        _annotations(section),
        _resources(section.section("resources")),
    )
    section.done()
    return found


def _tolerations(section: Section) -> tuple[Toleration, ...]:
    found = []
    for place, given in enumerate(section.listed("tolerations", TOLERATIONS_LIMIT)):
        inner = Section(given, f"{section.path}.tolerations[{place}]", section.problems)
        key = inner.text("key", _label_name_problem, required=False) or None
        operator = inner.choice("operator", ("Exists", "Equal"), "Equal")
        value = inner.text("value", _label_value_problem, required=False) or None
        inner.allow("effect")
        effect = inner.choice("effect", get_args(Effect)) if "effect" in inner else None
        seconds = inner.whole("tolerationSeconds", -1, low=0, high=SECONDS_LIMIT)
        inner.done()
        if operator == "Exists" and value is not None:
            inner.wrong("value", "stands beside operator Exists", "drop value, or make the operator Equal")
        if operator == "Equal" and key is None and not inner.told("key"):
            inner.wrong("key", "is missing", "name the taint, or make the operator Exists")
        if seconds >= 0 and effect != "NoExecute":
            inner.wrong("tolerationSeconds", "is for the effect NoExecute alone", "make it the effect")
        found.append(Toleration(key, operator, value, effect, seconds if seconds >= 0 else None))
    return tuple(found)


def _affinity(section: Section) -> Mapping[str, Any] | None:
    inner = section.section("affinity")
    if inner is None:
        return None
    found = {field: inner.value(field) for field in AFFINITY_FIELDS}
    for field, value in found.items():
        if value is not None and not isinstance(value, Mapping):
            inner.wrong(field, f"is {shown(value)}", "give a mapping, as in a pod")
    inner.done()
    return {field: value for field, value in found.items() if value is not None}


def _secrets(section: Section) -> tuple[str, ...]:
    return tuple(name for name, _ in _named(section, "imagePullSecrets", SECRETS_LIMIT, subdomain))


def _env(section: Section) -> tuple[tuple[str, str], ...]:
    return tuple(_named(section, "env", ENV_LIMIT, _variable_problem, value=True))


def _named(
    section: Section, field: str, limit: int, rule: Callable[[str], Wrong | None], *, value: bool = False
) -> list[tuple[str, str]]:
    """Entries with a name of their own each, and a value if they have one."""
    found: dict[str, str] = {}
    given_list = section.value(field)
    if given_list is not None and not isinstance(given_list, list | tuple):
        section.wrong(field, "is no list", "give a list, as in a pod")
        return []
    for place, given in enumerate(section.listed(field, limit)):
        if not isinstance(given, Mapping):
            section.wrong(f"{field}[{place}]", "is no mapping", "give a mapping of fields")
            continue
        inner = Section(given, f"{section.path}.{field}[{place}]", section.problems)
        name = inner.text("name", rule)
        text = inner.value("value", "give a string", required=True) if value else ""
        inner.done()
        # Not shown: it may be a password.
        if value and text is not None and not isinstance(text, str):
            inner.wrong("value", "is no string", "give a string (a number in quotes)")
        elif isinstance(text, str) and len(text) > TEXT_LIMIT:
            inner.wrong("value", f"has {len(text)} characters", f"give at most {TEXT_LIMIT}")
        if name in found:
            inner.wrong("name", f"{name!r} stands there twice", "give each name once")
        if name:
            found[name] = str(text)
    return list(found.items())


def _annotations(section: Section) -> tuple[tuple[str, str], ...]:
    given = section.value("annotations")
    remedy = "give annotations, such as example.org/team: quality"
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        section.wrong("annotations", "is no mapping", remedy)
        return ()
    if len(given) > ANNOTATIONS_LIMIT:
        section.wrong("annotations", f"has {len(given)}", f"give at most {ANNOTATIONS_LIMIT}")
    found = []
    for name, value in given.items():
        if not isinstance(name, str) or not is_label_name(name):
            section.wrong("annotations", f"has the name {shown(name)}", remedy)
        elif name.split("/")[0] == "headwater.dev":
            section.wrong(f"annotations[{name}]", "is one that the operator writes", "give another name")
        elif not isinstance(value, str) or len(value) > TEXT_LIMIT:
            section.wrong(
                f"annotations[{name}]",
                f"is {shown(value)}",
                f"give a string of at most {TEXT_LIMIT} characters",
            )
        else:
            found.append((name, value))
    return tuple(sorted(found))


def _resources(section: Section | None) -> Resources:
    if section is None:
        return Resources()
    found = Resources(_quantities(section.section("requests")), _quantities(section.section("limits")))
    limits = dict(found.limits)
    for name, asked in found.requests:
        if name in limits and amount(asked) > amount(limits[name]):
            section.wrong(
                f"requests.{name}",
                f"is {asked}, above limits.{name}, which is {limits[name]}",
                "ask for the limit at most, or raise it",
            )
    section.done()
    return found


def _quantities(section: Section | None) -> tuple[tuple[str, str], ...]:
    if section is None:
        return ()
    found = []
    for name, pattern in QUANTITIES.items():
        given = section.value(name)
        if given is None:
            continue
        text = str(given) if isinstance(given, int) and not isinstance(given, bool) else given
        if not isinstance(text, str) or not pattern.fullmatch(text):
            usual = "cores such as 500m or 2" if name == "cpu" else "bytes such as 256Mi"
            section.wrong(name, f"is {shown(given)}", f"give {usual}")
        else:
            found.append((name, text))
    section.done()
    return tuple(found)


def _label_name_problem(given: str) -> Wrong | None:
    return None if is_label_name(given) else (f"is {shown(given)}", "name it like example.org/disk or disk")


def _label_value_problem(given: str) -> Wrong | None:
    if LABEL_VALUE.fullmatch(given):
        return None
    return f"is {shown(given)}", 'give at most 63 letters, digits, "-", "_" and "."'


def _variable_problem(given: str) -> Wrong | None:
    if not VARIABLE.fullmatch(given):
        return f"is {shown(given)}", "give letters, digits and _, not beginning with a digit"
    if given.startswith(OURS):
        return f"is {shown(given)}", f"give a name that does not begin with {OURS}: these are the operator's"
    return None
