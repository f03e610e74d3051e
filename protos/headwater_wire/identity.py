"""Who may say what on a stream, by the certificate of whoever opened it.

- The first envelope's sender owns the stream: that name must stand in the certificate, as a DNS name
  among the alternative names of its subject. Names are compared exactly; there are no wildcards.
- A certificate with the URI `headwater:role:node` (or `root`) is a node's. It says what a node says, and
  passes on what parties below it say; but not in the name of the receiver, its parent or the root, nor of a
  party that has a stream of its own to the receiver.
- Any other certificate is a source's: every envelope is in its own name, says hello, columns or probe, and
  is about itself.

So a device that is taken over can spoil its own records and nobody else's. A node is trusted with what is
below it: no certificate says whether it has aggregated rightly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import grpc

from headwater_wire.v1 import tree_pb2 as pb

ROLE = "headwater:role:"
NODES = ("node", "root")


@dataclass(frozen=True, slots=True)
class Peer:
    """Whoever is at the other end, by their certificate."""

    names: frozenset[str]
    roles: frozenset[str]

    @classmethod
    def of(cls, authenticated: Mapping[str, Iterable[bytes]]) -> Peer:
        """By what gRPC says of the peer's certificate."""
        names = (name.decode(errors="replace") for name in authenticated.get("peer_dns", ()))
        uris = (uri.decode(errors="replace") for uri in authenticated.get("peer_uri", ()))
        roles = (uri.removeprefix(ROLE) for uri in uris if uri.startswith(ROLE))
        return cls(frozenset(names), frozenset(roles))

    @property
    def label(self) -> str:
        """One name for all of them; empty if the certificate has none."""
        return min(self.names, default="")

    @property
    def is_node(self) -> bool:
        return not self.roles.isdisjoint(NODES)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an envelope is not heeded, and the stream ends with it unless it is only `dropped`."""

    code: grpc.StatusCode
    sentence: str
    dropped: bool = False


class Guards:
    """The streams to one party, `name`; `above` are the names of its parent and of the root."""

    def __init__(self, name: str, *, sources: bool = False) -> None:
        """`sources`: whoever has no certificate is a source, and no more."""
        self.name, self._sources = name, sources
        self.above: frozenset[str] = frozenset()
        # By name: the stream that its owner has opened last.
        self.owners: dict[str, Guard] = {}

    def guard(self, peer: Peer | None) -> Guard:
        """For a stream of somebody; None: nobody has a certificate here."""
        if peer is not None:
            return Guard(self, peer)
        return Plain(self) if self._sources else Open(self)


class Guard:
    """One stream: it looks at every envelope before anybody heeds it."""

    def __init__(self, guards: Guards, peer: Peer) -> None:
        self._guards, self._peer = guards, peer
        self._owner = ""

    @property
    def who(self) -> str:
        """Whoever is at the other end, by a name that their certificate proves; empty if it has none."""
        return self._owner or self._peer.label

    def refusal(self, envelope: pb.Envelope) -> Refusal | None:
        """Why this envelope is not heeded; None if it may be said."""
        if not self._owner:
            if wrong := self._stranger(envelope.sender):
                return wrong
            self._owner = envelope.sender
            self._guards.owners[self._owner] = self
        if self._peer.is_node:
            return self._relayed(envelope.sender)
        return self._of_a_source(envelope)

    def close(self) -> None:
        """The stream is over."""
        if self._guards.owners.get(self._owner) is self:
            del self._guards.owners[self._owner]

    def _stranger(self, sender: str) -> Refusal | None:
        if sender in self._peer.names:
            return None
        held = ", ".join(sorted(self._peer.names)) or "no DNS name"
        sentence = f"{sender!r} does not stand in the certificate that was presented, which holds {held}; "
        sentence += "give each party a certificate with its own name"
        return Refusal(grpc.StatusCode.UNAUTHENTICATED, sentence)

    def _relayed(self, sender: str) -> Refusal | None:
        guards = self._guards
        if sender == self._owner:
            return None
        if sender == guards.name or sender in guards.above:
            return self._denied(f"speaks as {sender!r}, which is not below it")
        if guards.owners.get(sender, self) is not self:
            # That stream may be dead without anybody knowing yet: then its owner is right to come this way.
            what = f"speaks as {sender!r}, which has a stream of its own to {guards.name}"
            return replace(self._denied(what), dropped=True)
        return None

    def _of_a_source(self, envelope: pb.Envelope) -> Refusal | None:
        if envelope.sender != self._owner:
            return self._denied(f"speaks as {envelope.sender!r}, but its certificate is no node's")
        kind = envelope.WhichOneof("message")
        if kind is None:
            return None
        if envelope.to != self._guards.name:
            return self._denied(f"speaks to {envelope.to!r}, but its certificate is no node's")
        about = _about(kind, getattr(envelope, kind))
        if about is None:
            return self._denied(f"says {kind}, but its certificate is no node's")
        others = sorted(set(about) - {self._owner})
        return self._denied(f"says {kind} of {others[0]!r}, which is not itself") if others else None

    def _denied(self, what: str) -> Refusal:
        return Refusal(grpc.StatusCode.PERMISSION_DENIED, f"{self._owner!r} {what}; see docs/security.md")


class Open(Guard):
    """A stream in plain text: who somebody is nobody knows, but they are held to what they say.

    Anybody can take any name but those of the receiver and of who is above it; whoever has one sends no
    records of others under it.
    """

    def __init__(self, guards: Guards) -> None:
        super().__init__(guards, Peer(frozenset(), frozenset()))

    @property
    def who(self) -> str:
        return self._owner

    def refusal(self, envelope: pb.Envelope) -> Refusal | None:
        self._owner = self._owner or envelope.sender
        if envelope.sender == self._guards.name or envelope.sender in self._guards.above:
            return self._denied(f"speaks as {envelope.sender!r}, which is not below it")
        if envelope.WhichOneof("message") != "columns":
            return None
        # Nobody passes columns on: they are said on the stream of whoever has them.
        for named in (envelope.columns.events.source, envelope.sender):
            if named and named != self._owner:
                return self._denied(f"says columns of {named!r}, which is not itself")
        return None


class Plain(Guard):
    """A stream in plain text to a child of a tree with certificates: whoever opens it is a source by the name
    that it says, and says nothing but what a source says of itself. Nothing of it goes on upwards."""

    def __init__(self, guards: Guards) -> None:
        super().__init__(guards, Peer(frozenset(), frozenset()))

    @property
    def who(self) -> str:
        return self._owner

    def refusal(self, envelope: pb.Envelope) -> Refusal | None:
        self._owner = self._owner or envelope.sender
        if envelope.sender == self._guards.name or envelope.sender in self._guards.above:
            return self._denied(f"speaks as {envelope.sender!r}, which is not below it")
        return self._of_a_source(envelope)


def _about(kind: str, body: Any) -> list[str] | None:
    """Whom a message of a source is about; None if it is none of a source."""
    if kind == "hello":
        return [body.name]
    if kind == "columns":
        return [body.events.source]
    if kind == "probe":
        return [each.name for each in (*body.heads, *body.interest)]
    return None
