"""Where the pods of a layer run, and what they have of a pod template."""

from __future__ import annotations

from typing import get_args

from headwater.topology.placement import (
    AFFINITY_FIELDS,
    ANNOTATIONS_LIMIT,
    ENV_LIMIT,
    OURS,
    QUANTITIES,
    SECONDS_LIMIT,
    SECRETS_LIMIT,
    TOLERATIONS_LIMIT,
    WHOLE,
)
from headwater.topology.sections import (
    LABEL_STEM,
    LABEL_VALUE,
    SUBDOMAIN,
    SUBDOMAIN_LIMIT,
    TEXT_LIMIT,
    VARIABLE,
)
from headwater.topology.tree import Effect, Mode
from headwater_operator.crds import cel
from headwater_operator.crds.fields import (
    Rule,
    Schema,
    choice,
    listed,
    mapping,
    selector,
    subdomain,
    text,
    whole,
    with_rules,
)

_LABEL_NAME = f"^({SUBDOMAIN.pattern}/)?{LABEL_STEM.pattern}$"
_NAME_LIMIT = SUBDOMAIN_LIMIT + 1 + 63


def placement() -> Schema:
    return mapping(
        "Where nodes run.",
        {
            "child": _layer("Children, close to the devices."),
            "intermediate": _layer("Nodes between children and the root."),
            "root": _layer("The root."),
        },
    )


def _layer(about: str) -> Schema:
    return mapping(
        about,
        {
            "mode": choice(
                "pool: as many as are planned, on any node that matches (default). perNode: one on each.",
                get_args(Mode),
            ),
            "nodeSelector": selector("The labels that a node must have."),
            "tolerations": listed("Taints that do not keep its pods away.", _toleration(), TOLERATIONS_LIMIT),
            "affinity": _affinity(),
            "priorityClassName": subdomain("The PriorityClass of its pods."),
            "imagePullSecrets": listed(
                "Secrets with which its images are pulled.",
                mapping("One of them.", {"name": subdomain("The name of the Secret.")}, ("name",)),
                SECRETS_LIMIT,
                keys=("name",),
            ),
            # No list map, which tells an entry that is none with what stands in it.
            "env": with_rules(
                listed("Environment variables of its containers.", _variable(), ENV_LIMIT),
                Rule("self.all(one, self.exists_one(other, other.name == one.name))", "give each name once"),
            ),
            "annotations": _annotations(),
            "resources": mapping(
                "What its containers ask for and what they may have.",
                {"requests": _quantities("What they ask for."), "limits": _quantities("What they may have.")},
                (),
                *map(_within_limits, QUANTITIES),
            ),
        },
    )


def _within_limits(name: str) -> Rule:
    asked, limit = (f"quantity(string(self.{field}.{name}))" for field in ("requests", "limits"))
    both = f"has(self.requests) && has(self.requests.{name}) && has(self.limits) && has(self.limits.{name})"
    return Rule(
        f"!({both}) || !{asked}.isGreaterThan({limit})",
        f"is above limits.{name}; ask for the limit at most, or raise it",
        f".requests.{name}",
    )


def _toleration() -> Schema:
    return mapping(
        "One of them, as in a pod.",
        {
            "key": with_rules(
                text("The taint.", _NAME_LIMIT, _LABEL_NAME),
                Rule(f"size(self.split('/')[0]) <= {SUBDOMAIN_LIMIT}", "has a prefix that is too long"),
            ),
            "operator": choice(
                "Exists: with any value. Equal: with this one (default).", ("Exists", "Equal")
            ),
            "value": text("The value of the taint.", 63, f"^{LABEL_VALUE.pattern}$"),
            "effect": choice("The effect of the taint; any, if none is given.", get_args(Effect)),
            "tolerationSeconds": whole("For how long, with the effect NoExecute.", 0, SECONDS_LIMIT),
        },
        (),
        Rule(
            "!has(self.operator) || self.operator == 'Equal' || !has(self.value)",
            "stands beside operator Exists; drop value, or make the operator Equal",
            ".value",
        ),
        Rule(
            "has(self.key) || (has(self.operator) && self.operator == 'Exists')",
            "is missing; name the taint, or make the operator Exists",
            ".key",
            "FieldValueRequired",
        ),
        Rule(
            "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
            "is for the effect NoExecute alone; make it the effect",
            ".tolerationSeconds",
        ),
    )


def _affinity() -> Schema:
    """Handed on as it is: an API server judges it with the pod."""
    return mapping(
        "Which nodes and which neighbours its pods prefer, as in a pod.",
        {
            name: {
                "description": f"The {name} of a pod.",
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
            }
            for name in AFFINITY_FIELDS
        },
    )


def _variable() -> Schema:
    name = with_rules(
        text("Its name.", pattern=f"^{VARIABLE.pattern}$"),
        Rule(f"!self.startsWith('{OURS}')", f"must not begin with {OURS}: these are the operator's"),
    )
    value = {"description": "Its value.", "type": "string", "maxLength": TEXT_LIMIT}
    return mapping("One of them.", {"name": name, "value": value}, ("name", "value"))


def _annotations() -> Schema:
    found: Schema = {
        "description": "Annotations of its pods.",
        "type": "object",
        "maxProperties": ANNOTATIONS_LIMIT,
        "additionalProperties": {"type": "string", "maxLength": TEXT_LIMIT},
    }
    named = f"name.matches({cel.quoted(_LABEL_NAME)}) && size(name.split('/')[0]) <= {SUBDOMAIN_LIMIT}"
    return with_rules(
        found,
        Rule(f"self.all(name, {named})", "must name annotations like example.org/team"),
        Rule("self.all(name, name.split('/')[0] != 'headwater.dev')", "has one that the operator writes"),
    )


def _quantities(about: str) -> Schema:
    usual = {"cpu": "Cores, such as 500m or 2.", "memory": "Bytes, such as 256Mi."}
    return mapping(
        about,
        {
            name: {
                "description": usual[name],
                "x-kubernetes-int-or-string": True,
                "maxLength": 16,
                "pattern": f"^{pattern.pattern}$",
                "minimum": 0,
                "maximum": WHOLE[name],
            }
            for name, pattern in QUANTITIES.items()
        },
    )
