"""What the operator reports of a topology and of a query."""

from __future__ import annotations

from headwater.planning.plan import MAX_LAYERS
from headwater.topology.manifest import NODES_LIMIT, SOURCES_LIMIT
from headwater.topology.sections import LABEL_LIMIT, TEXT_LIMIT
from headwater_operator.crds.fields import Schema, choice, listed, mapping, number, text, whole

# More layers no tree has, with the root; and no more of its nodes are told of.
LAYERS, WORST = MAX_LAYERS + 1, 10
# An API server holds bounds as floats: the largest int64 would come out beyond, and be taken for the least.
_GENERATIONS = 1 << 53


def of_topology() -> Schema:
    layer = mapping(
        "One layer of the plan.",
        {
            "layer": whole("Counted from the children up.", 1, LAYERS),
            "role": choice("What its nodes are.", ("child", "intermediate", "root")),
            "width": whole("How many nodes it has.", 1, NODES_LIMIT),
            "ready": whole("How many of them are ready.", 0, NODES_LIMIT),
            "rate": number("Items a second that its busiest node takes."),
            "headroom": number("The least share of a limit that one of its nodes has left."),
        },
        ("layer", "role", "width"),
    )
    node = mapping(
        "A node that is not as it should be.",
        {
            "name": text("Its name.", LABEL_LIMIT),
            "reason": text("Why, in a word.", LABEL_LIMIT),
            "message": text("Why, in a sentence."),
        },
        ("name", "reason"),
    )
    busy = mapping(
        "A node, as measured and as planned.",
        {
            "name": text("Its name.", LABEL_LIMIT),
            "rate": number("Items a second that it takes."),
            "plannedRate": number("Items a second that it is planned for."),
            "headroom": number("The share of its limit that it has left."),
            "plannedHeadroom": number("The share of its limit that the plan leaves."),
        },
        ("name",),
    )
    return mapping(
        "How it stands.",
        {
            "observedGeneration": _generation(),
            "reason": text(
                "In a word, what is to be known of it: mostly the reason of a condition.", LABEL_LIMIT
            ),
            "version": text("The release of the operator that wrote this.", LABEL_LIMIT),
            "conditions": _conditions("Planned, Progressing, Ready and Degraded, with reasons."),
            "widths": text("The widths of the layers, children first, such as 13 7 4 2 1."),
            "nodes": whole("How many nodes are planned.", 0, NODES_LIMIT),
            "readyNodes": whole("How many of them are ready.", 0, NODES_LIMIT),
            "sources": whole("How many sources send.", 0, SOURCES_LIMIT),
            "rate": number("Events a second that they send together."),
            "root": text("How the root is.", LABEL_LIMIT),
            "lag": text(
                "How far results are behind the events, or the clock where the watermark stands still.",
                LABEL_LIMIT,
            ),
            "busiest": listed("The nodes with the least headroom, as measured.", busy, WORST),
            "layers": listed("The plan, layer by layer.", layer, LAYERS),
            "worst": listed("The nodes that are furthest from being well.", node, WORST),
            "lastGoodGeneration": _generation("The last generation of the spec that was rolled out."),
        },
    )


def of_query() -> Schema:
    return mapping(
        "How it stands.",
        {
            "observedGeneration": _generation(),
            "conditions": _conditions("Accepted, with the reason where it is not."),
            "group": text("Queries with the same share one pass over the events.", LABEL_LIMIT),
            "lane": whole("The lane of the delivery in which it comes.", 0, _GENERATIONS),
            "computed": choice(
                "distributed: by all nodes. central: by the root.", ("distributed", "central")
            ),
            "why": text("Why it is computed at the root."),
            "lag": text("How far what is final is behind the events.", LABEL_LIMIT),
        },
    )


def _generation(about: str = "The generation of the spec that this is about.") -> Schema:
    return whole(about, 0, _GENERATIONS)


def _conditions(about: str) -> Schema:
    one = mapping(
        "One condition.",
        {
            "type": text("What it is about.", 316),
            "status": choice("Whether it holds.", ("True", "False", "Unknown")),
            "reason": text("Why, in a word.", TEXT_LIMIT),
            "message": {"description": "Why, in a sentence.", "type": "string", "maxLength": 32_768},
            "observedGeneration": _generation(),
            "lastTransitionTime": {
                "description": "Since when.",
                "type": "string",
                "format": "date-time",
            },
        },
        ("type", "status", "reason", "message", "lastTransitionTime"),
    )
    return listed(about, one, 16, keys=("type",))
