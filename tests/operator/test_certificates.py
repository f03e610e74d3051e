"""Certificates of a tree: who they are taken by, and when they are replaced."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from headwater_operator.certificates import (
    AUTHORITY_LASTS,
    AUTHORITY_RENEWED,
    DAY,
    LASTS,
    RENEWED,
    SPREAD,
    Authority,
    Pair,
    Role,
    advanced,
    authority,
    bundle,
    issue,
    needs_renewal,
    unfit,
    union,
    unusable,
)
from headwater_wire.credentials import Credentials
from tests.wire.parties import Party, parties, until

NOW = datetime(2030, 5, 1, 12, tzinfo=UTC)
NAMES = ("mill-l1-0.mill-l1.plant.svc", "203.0.113.7", "2001:db8::7")


def _names(pair: Pair) -> tuple[list[str], list[str], list[str]]:
    found = x509.load_pem_x509_certificate(pair.certificate)
    held = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = [str(each) for each in held.get_values_for_type(x509.IPAddress)]
    uris = held.get_values_for_type(x509.UniformResourceIdentifier)
    return held.get_values_for_type(x509.DNSName), addresses, uris


def _why(
    pair: Pair,
    by: Authority,
    now: datetime,
    *,
    id: str = "c",
    names: tuple[str, ...] = NAMES,
    role: Role = "node",
) -> str | None:
    return needs_renewal(pair, by, id, names, role, now)


def test_a_certificate_bears_its_names_and_its_role() -> None:
    held = issue(authority("mill", NOW), "mill-l1-0", NAMES, "node", NOW)
    dns = ["mill-l1-0", "mill-l1-0.mill-l1.plant.svc"]
    assert _names(held) == (dns, ["203.0.113.7", "2001:db8::7"], ["headwater:role:node"])
    found = x509.load_pem_x509_certificate(held.certificate)
    key = found.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert key.curve.name == "secp256r1"
    assert found.not_valid_after_utc == NOW + LASTS
    assert found.not_valid_before_utc < NOW


def test_an_authority_lasts_for_ten_years_and_signs_nothing_beyond_them() -> None:
    held = authority("a" * 40, NOW)
    found = x509.load_pem_x509_certificate(held.signing.certificate)
    assert found.not_valid_after_utc == NOW + AUTHORITY_LASTS
    constraints = found.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (constraints.ca, constraints.path_length) == (True, 0)
    late = NOW + AUTHORITY_LASTS - DAY
    last = x509.load_pem_x509_certificate(issue(held, "c", (), "node", late).certificate)
    assert last.not_valid_after_utc == found.not_valid_after_utc


def test_a_certificate_is_renewed_when_it_has_to_be() -> None:
    by = authority("mill", NOW)
    held = issue(by, "c", NAMES, "node", NOW)
    assert _why(held, by, NOW) is None
    assert _why(held, by, NOW + RENEWED - timedelta(seconds=1)) is None
    assert _why(held, by, NOW + RENEWED) == "it expires soon"
    assert _why(held, by, NOW + LASTS) == "it has expired"
    assert _why(held, by, NOW - DAY) == "it is not valid yet"
    assert _why(held, by, NOW, names=NAMES[:1]) == "its names have changed"
    assert _why(held, by, NOW, names=(*NAMES, "more")) == "its names have changed"
    assert _why(held, by, NOW, names=tuple(reversed(NAMES))) is None
    assert _why(held, by, NOW, id="d") == "its names have changed"
    assert _why(held, by, NOW, role="root") == "its names have changed"
    assert _why(held, authority("mill", NOW), NOW) == "another authority has signed it"
    other = issue(by, "c", NAMES, "node", NOW)
    assert _why(Pair(held.certificate, other.key), by, NOW) == "the key is that of another certificate"
    for broken in (b"", b"no PEM", held.certificate[:100], held.key):
        assert _why(Pair(broken, held.key), by, NOW) == "it cannot be read"
    for broken in (b"", b"no PEM", held.certificate):
        assert _why(Pair(held.certificate, broken), by, NOW) == "it cannot be read"


def test_an_authority_that_cannot_sign_is_told() -> None:
    good, other = authority("mill", NOW), authority("mill", NOW)
    assert unusable(good) is None
    assert unusable(replace(good, successor=other.signing, former=other.signing.certificate)) is None
    mixed = Pair(good.signing.certificate, other.signing.key)
    assert unusable(Authority(mixed)) == "the key of the authority is that of another certificate"
    assert unusable(Authority(Pair(b"", b""))) == "the authority cannot be read"
    assert unusable(replace(good, successor=Pair(b"", b""))) == "the authority cannot be read"
    assert unusable(replace(good, former=b"")) == "the former authority cannot be read"


def _count(pem: bytes) -> int:
    return len(x509.load_pem_x509_certificates(pem))


def test_an_authority_is_replaced_step_by_step() -> None:
    first = authority("mill", NOW)
    assert advanced(first, "mill", NOW + AUTHORITY_RENEWED - DAY) is first
    at = NOW + AUTHORITY_RENEWED
    prepared = advanced(first, "mill", at)
    # It is trusted, and does not sign yet.
    assert prepared.signing == first.signing
    assert _count(prepared.trusted) == 2
    assert advanced(prepared, "mill", at + SPREAD / 2) is prepared
    at += SPREAD
    changed = advanced(prepared, "mill", at)
    assert changed.signing == prepared.successor
    assert changed.former == first.signing.certificate
    assert _count(changed.trusted) == 2
    held = issue(first, "c", NAMES, "node", at - 2 * SPREAD)
    assert _why(held, prepared, at) is None
    assert _why(held, changed, at) == "another authority has signed it"
    assert advanced(changed, "mill", at + LASTS - timedelta(seconds=1)) is changed
    alone = advanced(changed, "mill", at + LASTS)
    assert (alone.successor, alone.former, alone.signing) == (None, None, changed.signing)
    assert _count(alone.trusted) == 1
    # Nobody has looked for all that time.
    fresh = advanced(first, "mill", NOW + AUTHORITY_LASTS)
    assert fresh.signing != first.signing
    assert _count(fresh.trusted) == 1


def test_a_bundle_has_the_certificates_of_all() -> None:
    one, other = (authority(name, NOW).signing.certificate for name in ("a", "b"))
    assert _count(bundle(one.rstrip(), None, other)) == 2


def _files(directory: Path, pair: Pair, trusted: bytes) -> Credentials:
    directory.mkdir(exist_ok=True)
    found = Credentials(directory / "tls.crt", directory / "tls.key", directory / "ca.crt")
    found.certificate.write_bytes(pair.certificate)
    found.key.write_bytes(pair.key)
    found.ca.write_bytes(trusted)
    assert Credentials.of({name: str(getattr(found, name)) for name in ("certificate", "key", "ca")})
    return found


async def _talked(above: Credentials, below: Credentials, name: str) -> str | None:
    """What is wrong between two parties over TLS; None if they have heard each other."""
    parent, child = Party("root", above), Party(name, below)
    async with parties(parent, child):
        port = await parent.exchange.serve("127.0.0.1:0")
        child.exchange.connect(f"127.0.0.1:{port}", "root", "root")
        child.hello("root", name)
        await until(lambda: child.heard or child.exchange.uplink.problem)
        return child.exchange.uplink.problem


def test_a_node_and_the_root_of_a_tree_hear_each_other(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    by = authority("mill", now)
    root = _files(tmp_path / "root", issue(by, "root", ("mill-root.plant.svc",), "root", now), by.trusted)
    node = _files(tmp_path / "node", issue(by, "mill-l1-0", NAMES, "node", now), by.trusted)
    assert asyncio.run(_talked(root, node, "mill-l1-0")) is None
    problem = asyncio.run(_talked(root, node, "mill-l1-1"))
    assert problem is not None
    assert "does not stand in the certificate" in problem


@pytest.mark.parametrize("renewed_first", ["root", "node"])
def test_while_an_authority_is_replaced_everybody_hears_each_other(
    tmp_path: Path, renewed_first: str
) -> None:
    now = datetime.now(UTC)
    before = authority("mill", now - AUTHORITY_RENEWED - SPREAD)
    prepared = advanced(before, "mill", now - SPREAD)
    after = advanced(prepared, "mill", now)
    assert after.signing == prepared.successor
    signers = {name: after if name == renewed_first else prepared for name in ("root", "node")}
    # What each trusts may have been written before the change as well as behind it.
    root = _files(
        tmp_path / "root",
        issue(signers["root"], "root", (), "root", now),
        signers["root"].trusted,
    )
    node = _files(
        tmp_path / "node",
        issue(signers["node"], "c", (), "node", now),
        signers["node"].trusted,
    )
    assert asyncio.run(_talked(root, node, "c")) is None


# What others have issued


def _held(pair: Pair, trusted: bytes) -> dict[str, bytes]:
    return {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": trusted}


def _unfit(files: dict[str, bytes], now: datetime = NOW, *, id: str = "c", role: Role = "node") -> str:
    return unfit(files, id, NAMES, role, now) or ""


def test_what_another_authority_has_issued_is_taken_if_it_names_the_party() -> None:
    by = authority("plant", NOW)
    files = _held(issue(by, "c", NAMES, "node", NOW), by.trusted)
    assert _unfit(files) == ""
    assert _unfit(files, id="d") == "it does not name d; let the issuer take the names of the Certificate"
    assert _unfit(files, role="root").startswith("it does not name headwater:role:root; ")
    for time in (NOW + LASTS, NOW - DAY):
        assert _unfit(files, time).startswith("it has expired, or is not valid yet; ")
    more = _held(issue(by, "c", (*NAMES, "and.more"), "node", NOW), by.trusted)
    assert _unfit(more) == ""


def test_what_cannot_be_used_is_told_with_its_remedy() -> None:
    by, other = authority("plant", NOW), authority("else", NOW)
    good = _held(issue(by, "c", NAMES, "node", NOW), by.trusted)
    another = _held(issue(by, "c", NAMES, "node", NOW), by.trusted)
    itself = {**good, "ca.crt": good["tls.crt"]}
    for files, told in [
        ({}, "its tls.crt or tls.key cannot be read; "),
        ({**good, "tls.key": b"no key"}, "its tls.crt or tls.key cannot be read; "),
        ({**good, "tls.key": another["tls.key"]}, "its key is that of another certificate; "),
        ({**good, "ca.crt": b""}, "it has no ca.crt with an authority; use an issuer with a CA"),
        (itself, "it has no ca.crt with an authority; use an issuer with a CA"),
        ({**good, "ca.crt": other.trusted}, "its ca.crt is not that of who has signed it; "),
    ]:
        assert _unfit(files).startswith(told)


def test_a_chain_leads_to_what_is_trusted() -> None:
    """An issuer that signs by an authority below the one that it gives as ca.crt."""
    above = Above()
    below = above.below("below")
    pair = issue(below, "c", NAMES, "node", NOW)
    chain = Pair(bundle(pair.certificate, below.signing.certificate), pair.key)
    assert _unfit(_held(chain, above.certificate)) == ""
    # Whoever gets the leaf alone cannot know by whom it is.
    assert _unfit(_held(pair, above.certificate)).startswith("its ca.crt is not that of who has signed it")


def test_a_role_more_than_was_asked_for_is_none_of_an_issuer() -> None:
    by = authority("plant", NOW)
    pair = issue(by, "c", NAMES, "node", NOW)
    roles = ["headwater:role:node", "headwater:role:operator"]
    files = _held(_with_uris(pair, by, roles), by.trusted)
    assert _unfit(files) == "it has the role headwater:role:operator as well; let the issuer add none"
    assert _unfit(_held(_with_uris(pair, by, [*roles[:1], "spiffe://plant/c"]), by.trusted)) == ""


def test_a_certificate_has_to_be_for_both_sides() -> None:
    by = authority("plant", NOW)
    pair = issue(by, "c", NAMES, "node", NOW)
    servers = _with_uris(pair, by, ["headwater:role:node"], [ExtendedKeyUsageOID.SERVER_AUTH])
    assert _unfit(_held(servers, by.trusted)).startswith("it is not for servers and clients; ")


def test_authorities_are_named_once() -> None:
    a, b = authority("a", NOW).trusted, authority("b", NOW).trusted
    assert union(a, None, bundle(b, a), b"none") == bundle(a, b)
    assert union() == b""


class Above:
    """An authority that others sign by."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "above")])
        self.certificate = self._signed(self._name, self._key).public_bytes(serialization.Encoding.PEM)

    def below(self, name: str) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        made = self._signed(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key)
        written = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return Authority(Pair(made.public_bytes(serialization.Encoding.PEM), written))

    def _signed(self, name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - DAY)
            .not_valid_after(NOW + AUTHORITY_LASTS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )


def _with_uris(
    pair: Pair, by: Authority, uris: list[str], uses: list[x509.ObjectIdentifier] | None = None
) -> Pair:
    """The same certificate with other URIs and uses."""
    given = x509.load_pem_x509_certificate(pair.certificate)
    signer = serialization.load_pem_private_key(by.signing.key, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    held = given.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    others = [each for each in held if not isinstance(each, x509.UniformResourceIdentifier)]
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    made = (
        x509.CertificateBuilder()
        .subject_name(given.subject)
        .issuer_name(given.issuer)
        .public_key(given.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(given.not_valid_before_utc)
        .not_valid_after(given.not_valid_after_utc)
        .add_extension(
            x509.SubjectAlternativeName([*others, *map(x509.UniformResourceIdentifier, uris)]), critical=False
        )
        .add_extension(x509.ExtendedKeyUsage(uses or both), critical=False)
        .sign(signer, hashes.SHA256())
    )
    return Pair(made.public_bytes(serialization.Encoding.PEM), pair.key)
