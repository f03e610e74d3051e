"""Fields of a structural schema, each with what `kubectl explain` says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.topology.sections import (
    DURATION_LIMIT,
    LABEL,
    LABEL_LIMIT,
    LABEL_STEM,
    LABEL_VALUE,
    SELECTOR_LIMIT,
    SERVICE,
    SUBDOMAIN,
    SUBDOMAIN_LIMIT,
    TEXT_LIMIT,
)
from headwater_operator.crds import cel

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """What must hold of a value, and what is said where it does not."""

    rule: str
    message: str
    # The field that is to blame, from the value on.
    field: str = ""
    reason: str = "FieldValueInvalid"

    def written(self) -> Schema:
        found = {"rule": self.rule, "message": self.message, "reason": self.reason}
        return {**found, "fieldPath": self.field} if self.field else found


def with_rules(schema: Schema, *rules: Rule) -> Schema:
    known = schema.get("x-kubernetes-validations", [])
    return {**schema, "x-kubernetes-validations": [*known, *(rule.written() for rule in rules)]}


def mapping(about: str, fields: Mapping[str, Schema], required: Sequence[str] = (), *rules: Rule) -> Schema:
    found: Schema = {"description": about, "type": "object", "properties": dict(fields)}
    if required:
        found["required"] = list(required)
    return with_rules(found, *rules) if rules else found


def listed(about: str, items: Schema, most: int, *, least: int = 0, keys: Sequence[str] = ()) -> Schema:
    found: Schema = {"description": about, "type": "array", "items": items, "maxItems": most}
    if least:
        found["minItems"] = least
    if keys:
        return {**found, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}
    return {**found, "x-kubernetes-list-type": "atomic"}


def text(about: str, most: int = TEXT_LIMIT, pattern: str | None = None) -> Schema:
    found: Schema = {"description": about, "type": "string", "minLength": 1, "maxLength": most}
    return found if pattern is None else {**found, "pattern": pattern}


def hidden(about: str, pattern: str, message: str) -> Schema:
    """A text that may hold a secret by mistake: a pattern that does not fit would be told with it, a rule is
    told without."""
    return with_rules(text(about), Rule(f"self.matches({cel.quoted(pattern)})", message))


def service(about: str, most: int) -> Schema:
    return text(about, most, f"^{SERVICE.pattern}$")


def label(about: str, most: int) -> Schema:
    return text(about, most, f"^{LABEL.pattern}$")


def subdomain(about: str) -> Schema:
    return text(about, SUBDOMAIN_LIMIT, f"^{SUBDOMAIN.pattern}$")


def choice(about: str, known: Sequence[str]) -> Schema:
    return {"description": about, "type": "string", "enum": list(known)}


def flag(about: str) -> Schema:
    return {"description": about, "type": "boolean"}


def whole(about: str, low: int, high: int) -> Schema:
    return {"description": about, "type": "integer", "format": "int64", "minimum": low, "maximum": high}


def positive(about: str) -> Schema:
    return {"description": about, "type": "number", "minimum": 0, "exclusiveMinimum": True}


def number(about: str) -> Schema:
    return {"description": about, "type": "number"}


def duration(about: str, *, at_least: int, at_most: int | None = None, signed: bool = False) -> Schema:
    """In microseconds, what it is at least and, if that matters, at most."""
    sign = "-?" if signed else ""
    found: Schema = {
        "description": about,
        "type": "string",
        "minLength": 2,
        "maxLength": DURATION_LIMIT,
        "pattern": rf"^\s*{sign}{cel.PARTS}\s*$",
    }
    if at_least == 1:
        # What a rule may cost is bounded: one digit that is not 0 says the same for less.
        return with_rules(found, Rule("self.matches('[1-9]')", "must be above 0s"))
    bounds = [f"{cel.microseconds('self')} >= {at_least}"] if at_least else []
    if at_most is not None:
        bounds.append(f"{cel.microseconds('self')} <= {at_most}")
    if not bounds:
        return found
    return with_rules(found, Rule(" && ".join(bounds), f"must be {cel.bounds(at_least, at_most)}"))


def selector(about: str, *, least: int = 0) -> Schema:
    found: Schema = {
        "description": about,
        "type": "object",
        "maxProperties": SELECTOR_LIMIT,
        "additionalProperties": {
            "type": "string",
            "maxLength": LABEL_LIMIT,
            "pattern": f"^{LABEL_VALUE.pattern}$",
        },
    }
    if least:
        found["minProperties"] = least
    name = cel.quoted(f"^({SUBDOMAIN.pattern}/)?{LABEL_STEM.pattern}$")
    rule = f"self.all(name, name.matches({name}) && size(name.split('/')[0]) <= {SUBDOMAIN_LIMIT})"
    return with_rules(found, Rule(rule, "must name labels like headwater.dev/tier or tier"))
