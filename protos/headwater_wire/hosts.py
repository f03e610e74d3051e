"""Where somebody is, as gRPC says it."""

from __future__ import annotations

from urllib.parse import unquote


def host_of(peer: str) -> str:
    """The host of a peer, such as `ipv4:10.0.0.4:51324` or `ipv6:%5B::1%5D:51324`."""
    return unquote(peer.partition(":")[2].rpartition(":")[0]).strip("[]") or peer
