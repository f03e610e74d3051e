"""Sinks whose addresses and passwords are in Secrets: the root finds them in its environment.

| sink | key of its Secret |
|---|---|
| postgres with dsnEnv, webhook with headersEnv | the name of each variable |
| postgres without dsnEnv | dsn |
| webhook without headersEnv | authorization, for the header of that name |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headwater.topology.tree import Sink, Topology
from headwater_operator.rendering.pods import Variable, from_secret

DSN_KEY, HEADER_KEY, HEADER = "dsn", "authorization", "Authorization"


def told(sink: Mapping[str, Any]) -> dict[str, Any]:
    """A sink of the manifest as the root gets it: with the variables that its Secret is put into."""
    found, secret = dict(sink), sink.get("secretRef")
    if secret is not None and sink.get("type") == "postgres" and not sink.get("dsnEnv"):
        found["dsnEnv"] = _variable("DSN", secret)
    if secret is not None and sink.get("type") == "webhook" and not sink.get("headersEnv"):
        found["headersEnv"] = {HEADER: _variable("HEADER", secret)}
    return found


def environment(topology: Topology) -> list[Variable]:
    """All that the sinks of a root read, each variable once."""
    found = {each["name"]: each for sink in topology.root.sinks for each in _variables(sink)}
    return [found[name] for name in sorted(found)]


def _variables(sink: Sink) -> Iterator[Variable]:
    secret = sink.secret_ref
    if secret is None:
        return
    if sink.type == "postgres":
        if sink.dsn_env is None:
            yield from_secret(_variable("DSN", secret), secret, DSN_KEY)
        else:
            yield from_secret(sink.dsn_env, secret, sink.dsn_env)
    elif sink.type == "webhook":
        if not sink.headers_env:
            yield from_secret(_variable("HEADER", secret), secret, HEADER_KEY)
        for _, variable in sink.headers_env:
            yield from_secret(variable, secret, variable)


def _variable(what: str, secret: str) -> str:
    """By the Secret and not by the sink's place, as the root knows a sink by it; a name of its own for each,
    since Secrets have no capitals."""
    return f"HEADWATER_{what}_{secret.replace('-', '_').replace('.', 'DOT')}"
