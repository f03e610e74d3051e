"""The certificates of a tree: an authority of its own, and one certificate for whoever speaks in it.

Pure but for the keys, which are made by chance; the time is an argument. Certificates are renewed long before
they end, and whoever has them reads them again while running. An authority changes in steps, so that nobody
ever meets a certificate of one that it does not know yet:

1. a successor is made, and everybody is told to trust it too;
2. a day later, when that has reached everybody, it signs: all certificates are renewed;
3. when the last certificate of the one before would have ended, that one is trusted no more.

What others have issued is looked at as closely: `unfit` says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from ipaddress import ip_address
from typing import Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from headwater_wire.identity import ROLE

DAY = timedelta(days=1)
AUTHORITY_LASTS, AUTHORITY_RENEWED = 3_650 * DAY, 3_285 * DAY
LASTS, RENEWED = 90 * DAY, 60 * DAY
# How long until a change of a Secret has surely reached every pod.
SPREAD = DAY
# Clocks at the edge are wrong by minutes.
BACKDATED = timedelta(hours=1)
COMMON_NAME_LIMIT = 64

Role = Literal["node", "root", "operator"]


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and the key to it, PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class Authority:
    """What signs, what will sign next, and the certificate of what has signed before."""

    signing: Pair
    successor: Pair | None = None
    former: bytes | None = None

    @property
    def trusted(self) -> bytes:
        """The certificates of all of them: what everybody checks against."""
        successor = None if self.successor is None else self.successor.certificate
        return bundle(self.signing.certificate, successor, self.former)


def bundle(*certificates: bytes | None) -> bytes:
    """PEM of several authorities as one file."""
    return b"".join(_ended(each) for each in certificates if each)


def union(*bundles: bytes | None) -> bytes:
    """PEM of all that is in several files, each certificate once; what cannot be read is left out."""
    found = dict.fromkeys(each for given in bundles if given for each in _certificates(given))
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in found)


def _ended(pem: bytes) -> bytes:
    return pem if pem.endswith(b"\n") else pem + b"\n"


def authority(topology: str, now: datetime) -> Authority:
    """A new one, for a tree that has none."""
    return Authority(_root(topology, now))


def advanced(held: Authority, topology: str, now: datetime) -> Authority:
    """The authority as it should be by now: the same, or a step further on its way to the next one."""
    if _past(held.signing.certificate, AUTHORITY_LASTS, now):
        # Nobody has looked for years: what it has signed is worth nothing any more.
        return authority(topology, now)
    if held.successor is not None and _past(held.successor.certificate, SPREAD, now):
        return Authority(held.successor, former=held.signing.certificate)
    if held.successor is None and _past(held.signing.certificate, AUTHORITY_RENEWED, now):
        return replace(held, successor=_root(topology, now))
    if held.former is not None and _past(held.signing.certificate, SPREAD + LASTS, now):
        return replace(held, former=None)
    return held


def unusable(held: Authority) -> str | None:
    """Why an authority cannot sign; None if it can. What cannot is to be replaced."""
    for pair in (held.signing, held.successor):
        if pair is None:
            continue
        certificate, key = _certificate(pair.certificate), _key(pair.key)
        if certificate is None or key is None:
            return "the authority cannot be read"
        if certificate.public_key() != key.public_key():
            return "the key of the authority is that of another certificate"
    if held.former is not None and _certificate(held.former) is None:
        return "the former authority cannot be read"
    return None


def issue(by: Authority, id: str, names: Iterable[str], role: Role, now: datetime) -> Pair:
    """A certificate for a party: `id` is the name with which it speaks, `names` are those by which it is
    reached, addresses among them."""
    signer, signer_key = x509.load_pem_x509_certificate(by.signing.certificate), _key(by.signing.key)
    if signer_key is None:
        raise ValueError("the key of the authority cannot be read")
    key = ec.generate_private_key(ec.SECP256R1())
    made = (
        _begun(_name(id), signer.subject, key, now)
        .not_valid_after(min(now + LASTS, signer.not_valid_after_utc))
        .add_extension(x509.SubjectAlternativeName(_subjects(id, names, role)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
            critical=False,
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer_key.public_key()), critical=False
        )
        .sign(signer_key, hashes.SHA256())
    )
    return Pair(made.public_bytes(serialization.Encoding.PEM), _written(key))


def needs_renewal(
    held: Pair, by: Authority, id: str, names: Iterable[str], role: Role, now: datetime
) -> str | None:
    """Why a party is to have another certificate than the one that it has; None if that one is good."""
    found = _examined(held, by.signing.certificate)
    if isinstance(found, str):
        return found
    if now >= found.ends:
        return "it has expired"
    if now < found.begins:
        return "it is not valid yet"
    if now >= found.begins + BACKDATED + RENEWED:
        return "it expires soon"
    return None if found.names == set(_subjects(id, names, role)) else "its names have changed"


def made(held: Authority, age: timedelta, now: datetime) -> bool:
    """Whether what signs was made so long ago."""
    return _past(held.signing.certificate, age, now)


def signed_by(held: Authority, pair: Pair) -> bool:
    """Whether a certificate is of this authority, and not of another one."""
    return not isinstance(_examined(pair, held.signing.certificate), str)


def unfit(files: Mapping[str, bytes], id: str, names: Iterable[str], role: Role, now: datetime) -> str | None:
    """Why a party cannot have what somebody else has issued, with the remedy; None if it can."""
    found = _presented(files.get("tls.crt", b""), files.get("tls.key", b""), files.get("ca.crt", b""))
    if isinstance(found, str):
        return found
    if not found.begins <= now < found.ends:
        return "it has expired, or is not valid yet; look at the Certificate, and at the clocks"
    # An issuer may add names, but no role: that lets its bearer do what others may not.
    wanted = set(_subjects(id, names, role))
    missing = sorted(str(each.value) for each in wanted - found.names)
    if missing:
        return f"it does not name {', '.join(missing)}; let the issuer take the names of the Certificate"
    roles = (each for each in found.names - wanted if isinstance(each, x509.UniformResourceIdentifier))
    if more := sorted(each.value for each in roles if each.value.startswith(ROLE)):
        return f"it has the role {', '.join(more)} as well; let the issuer add none"
    return None


@dataclass(frozen=True, slots=True)
class _Examined:
    begins: datetime
    ends: datetime
    names: frozenset[x509.GeneralName]


# The certificates of trees that run are looked at again and again, and do not change for weeks.
@lru_cache(maxsize=16_384)
def _examined(held: Pair, signed_by: bytes) -> _Examined | str:
    """What a certificate says, or why it is worth nothing, whatever the time."""
    certificate, key = _certificate(held.certificate), _key(held.key)
    if certificate is None or key is None:
        return "it cannot be read"
    if certificate.public_key() != key.public_key():
        return "the key is that of another certificate"
    signer = _certificate(signed_by)
    if signer is None or not _signed(certificate, signer):
        return "another authority has signed it"
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return "it has no names"
    return _Examined(certificate.not_valid_before_utc, certificate.not_valid_after_utc, frozenset(found))


@lru_cache(maxsize=16_384)
def _presented(certificate: bytes, key: bytes, authorities: bytes) -> _Examined | str:
    """What a certificate of somebody else says, or why it is worth nothing, whatever the time."""
    chain, held, trusted = _certificates(certificate), _key(key), _certificates(authorities)
    if not chain or held is None:
        return "its tls.crt or tls.key cannot be read; have the Certificate issued again"
    if chain[0].public_key() != held.public_key():
        return "its key is that of another certificate; have the Certificate issued again"
    if not trusted or not all(map(_is_authority, trusted)):
        return "it has no ca.crt with an authority; use an issuer with a CA, such as one of kind ca or vault"
    if not _leads(chain, trusted):
        return "its ca.crt is not that of who has signed it; use an issuer that gives the CA that it signs by"
    try:
        uses = chain[0].extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        found = chain[0].extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return "it has no names or no uses; let the issuer take those of the Certificate"
    if not {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH} <= set(uses):
        return "it is not for servers and clients; let the issuer take the usages of the Certificate"
    return _Examined(chain[0].not_valid_before_utc, chain[0].not_valid_after_utc, frozenset(found))


def _leads(chain: Sequence[x509.Certificate], trusted: Iterable[x509.Certificate]) -> bool:
    """Whether each of a chain has signed the one before it, up to one that is trusted."""
    anchors = list(trusted)
    for each, above in zip(chain, (*chain[1:], None), strict=True):
        if any(_signed(each, anchor) for anchor in anchors):
            return True
        if above is None or not _signed(each, above):
            return False
    return False


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def _root(topology: str, now: datetime) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    # Each has a name of its own: of two with one name, a party may try the wrong one.
    mark = hashes.Hash(hashes.SHA256())
    mark.update(_spki(key))
    name = _name(f"headwater {topology} {mark.finalize().hex()[:8]}")
    made = (
        _begun(name, name, key, now)
        .not_valid_after(now + AUTHORITY_LASTS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Pair(made.public_bytes(serialization.Encoding.PEM), _written(key))


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:COMMON_NAME_LIMIT])])


def _subjects(id: str, names: Iterable[str], role: Role) -> list[x509.GeneralName]:
    """The names of a certificate, each once, its id first."""
    found: list[x509.GeneralName] = [_subject(name) for name in dict.fromkeys((id, *names))]
    return [*found, x509.UniformResourceIdentifier(f"{ROLE}{role}")]


def _subject(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def hosts_of(der: bytes) -> list[str]:
    """The names of machines in a certificate; none if it is no certificate."""
    try:
        extensions = x509.load_der_x509_certificate(der).extensions
        found = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return []
    return found.get_values_for_type(x509.DNSName)


def _past(certificate: bytes, age: timedelta, now: datetime) -> bool:
    """Whether it was made so long ago."""
    made = x509.load_pem_x509_certificate(certificate).not_valid_before_utc + BACKDATED
    return now >= made + age


def _signed(certificate: x509.Certificate, signer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(signer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _certificate(pem: bytes) -> x509.Certificate | None:
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        return None


def _certificates(pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        return []


def _key(pem: bytes) -> ec.EllipticCurvePrivateKey | None:
    try:
        found = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return found if isinstance(found, ec.EllipticCurvePrivateKey) else None


def _written(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _spki(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
