"""Addresses as options: host and port, or several of them as gRPC writes them."""

from __future__ import annotations

import re

import click

# `10.0.0.4:7070`, `[::1]:7070`, `ipv4:10.0.0.4:7070,10.0.0.5:7070`, `unix:/run/child`.
_PORT = re.compile(r"\S+:(\d{1,5})")


def taken(context: click.Context, parameter: click.Parameter, given: str | None) -> str | None:
    """An address with a port: without one somebody else would be asked."""
    if not given or given.startswith("unix"):
        return given
    for each in given.split(","):
        found = _PORT.fullmatch(each)
        if found is None or not 0 < int(found[1]) < 65_536:
            raise click.BadParameter(f"{each!r} has no port; give HOST:PORT, such as 127.0.0.1:7070")
    return given
