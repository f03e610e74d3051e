"""Who may say what, by their certificate."""

from __future__ import annotations

import grpc
from hypothesis import given
from hypothesis import strategies as st

from headwater_wire.identity import Guard, Guards, Peer, Refusal
from headwater_wire.v1 import tree_pb2 as pb

NAMES = st.sampled_from(["s1", "s2", "c", "root", ""])


def opened(guards: Guards, name: str, *roles: str) -> Guard:
    guard = guards.guard(Peer(frozenset([name]), frozenset(roles)))
    assert guard.refusal(pb.Envelope(sender=name, to=name)) is None
    return guard


def code(refusal: Refusal | None) -> grpc.StatusCode | None:
    return None if refusal is None else refusal.code


def envelopes(sender: str, about: str, to: str = "c") -> dict[str, pb.Envelope]:
    """One of every kind, all about one party."""
    named = [pb.Named(name=about, incarnation=1)]
    standing = pb.Standing(name=about, incarnation=1)
    return {
        "hello": pb.Envelope(sender=sender, to=to, hello=pb.Hello(name=about)),
        "challenge": pb.Envelope(sender=sender, to=to, challenge=pb.Challenge()),
        "welcome": pb.Envelope(sender=sender, to=to, welcome=pb.Welcome(name=about)),
        "fenced": pb.Envelope(sender=sender, to=to, fenced=pb.Fenced()),
        "columns": pb.Envelope(sender=sender, to=to, columns={"events": {"source": about}}),
        "delivery": pb.Envelope(sender=sender, to=to, delivery=pb.Delivery()),
        "probe": pb.Envelope(sender=sender, to=to, probe=pb.Probe(heads=[standing], interest=named)),
        "ask": pb.Envelope(sender=sender, to=to, ask=pb.Ask(sources=named)),
        "tell": pb.Envelope(sender=sender, to=to, tell=pb.Tell()),
        "ack": pb.Envelope(sender=sender, to=to, ack=pb.Ack()),
        "resync": pb.Envelope(sender=sender, to=to, resync=pb.Resync()),
        "commit": pb.Envelope(sender=sender, to=to, commit=pb.Commit()),
        "silent": pb.Envelope(sender=sender, to=to, silent=pb.Silent(child=about, source=standing)),
        "crowded": pb.Envelope(sender=sender, to=to, crowded=pb.Crowded(child=about, source=standing)),
        "register": pb.Envelope(sender=sender, to=to, register=pb.Register(node=about)),
        "registered": pb.Envelope(sender=sender, to=to, registered=pb.Registered(node=about)),
        "leave": pb.Envelope(sender=sender, to=to, leave=pb.Leave(node=about)),
        "stale": pb.Envelope(sender=sender, to=to, stale=pb.Stale(stream=pb.StreamId(opener=about))),
        "piece": pb.Envelope(sender=sender, to=to, piece=pb.Piece()),
    }


def test_there_is_an_envelope_of_every_kind_here() -> None:
    kinds = {field.name for field in pb.Envelope.DESCRIPTOR.oneofs_by_name["message"].fields}
    assert set(envelopes("s1", "s1")) == kinds


@given(
    sender=NAMES,
    about=NAMES,
    to=st.sampled_from(["c", "c", "root", "s2"]),
    kind=st.sampled_from(sorted(envelopes("s1", "s1"))),
)
def test_a_source_speaks_as_itself_of_itself_to_its_child_and_only_what_sources_say(
    sender: str, about: str, to: str, kind: str
) -> None:
    guard = opened(Guards("c"), "s1")
    found = guard.refusal(envelopes(sender, about, to)[kind])
    if sender == about == "s1" and to == "c" and kind in ("hello", "columns", "probe"):
        assert found is None
    else:
        assert code(found) is grpc.StatusCode.PERMISSION_DENIED


@given(
    sender=NAMES,
    about=NAMES,
    to=st.sampled_from(["c", "c", "root", "s2"]),
    kind=st.sampled_from(sorted(envelopes("s1", "s1"))),
)
def test_a_device_in_plain_text_says_no_more_in_a_tree_with_certificates(
    sender: str, about: str, to: str, kind: str
) -> None:
    guards = Guards("c", sources=True)
    guards.above = frozenset(("m", "root"))
    guard = guards.guard(None)
    assert guard.refusal(pb.Envelope(sender="s1", to="s1")) is None
    found = guard.refusal(envelopes(sender, about, to)[kind])
    if sender == about == "s1" and to == "c" and kind in ("hello", "columns", "probe"):
        assert found is None
    else:
        assert code(found) is grpc.StatusCode.PERMISSION_DENIED
    # Nor does anybody by the name of those above begin a stream.
    for name in ("c", "m", "root"):
        assert code(guards.guard(None).refusal(pb.Envelope(sender=name, to=name))) is not None


def test_a_probe_that_asks_about_one_other_source_is_refused() -> None:
    guard = opened(Guards("c"), "s1")
    probe = pb.Probe(heads=[pb.Standing(name="s1")], interest=[pb.Named(name="s1"), pb.Named(name="s2")])
    assert (
        code(guard.refusal(pb.Envelope(sender="s1", to="c", probe=probe)))
        is grpc.StatusCode.PERMISSION_DENIED
    )


@given(first=NAMES, roles=st.sets(st.sampled_from(["node", "root", "source", "other"])))
def test_the_first_envelope_must_bear_a_name_of_the_certificate(first: str, roles: set[str]) -> None:
    peer = Peer(frozenset(["s1", "c"]), frozenset(roles))
    found = Guards("m").guard(peer).refusal(pb.Envelope(sender=first, to=first))
    if first in peer.names:
        assert found is None
    else:
        assert found is not None
        assert found.code is grpc.StatusCode.UNAUTHENTICATED
        assert repr(first) in found.sentence
        assert "c, s1" in found.sentence


def test_a_node_passes_on_what_is_below_it_and_nothing_else() -> None:
    guards = Guards("m")
    guards.above = frozenset(["n", "root"])
    node = opened(guards, "c", "node")
    assert node.refusal(envelopes("c", "s1")["delivery"]) is None
    assert node.refusal(envelopes("s1", "s1")["hello"]) is None
    for above in ("m", "n", "root"):
        assert code(node.refusal(envelopes(above, "s1")["commit"])) is grpc.StatusCode.PERMISSION_DENIED


def test_nobody_speaks_for_a_party_that_has_a_stream_of_its_own() -> None:
    guards = Guards("m")
    honest, other = opened(guards, "c1", "node"), opened(guards, "c2", "node")
    found = other.refusal(envelopes("c1", "s1")["delivery"])
    assert found is not None
    # Not the end of the stream: the one that c1 had here may be dead without anybody knowing.
    assert found.dropped
    again = other.refusal(envelopes("c1", "s1")["ack"])
    assert again is not None
    assert again.dropped
    honest.close()
    assert other.refusal(envelopes("c1", "s1")["delivery"]) is None


def test_a_stream_that_was_opened_again_is_its_owners() -> None:
    guards = Guards("m")
    before, after, other = (opened(guards, name, "node") for name in ("c1", "c1", "c2"))
    before.close()
    found = other.refusal(envelopes("c1", "s1")["delivery"])
    assert found is not None
    assert after.refusal(envelopes("c1", "s1")["delivery"]) is None


def test_a_role_is_a_uri_and_a_name_is_a_dns_name() -> None:
    peer = Peer.of(
        {"peer_dns": [b"headwater:role:node", b"s1"], "peer_uri": [b"https://x", b"headwater:role:source"]}
    )
    assert peer == Peer(frozenset(["headwater:role:node", "s1"]), frozenset(["source"]))
    assert not peer.is_node
    assert Peer.of({"peer_uri": [b"headwater:role:node"]}).is_node
    assert Peer.of({}) == Peer(frozenset(), frozenset())
