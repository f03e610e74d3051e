"""Certificates for tests: an authority, and what it issues, as files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from headwater_wire.credentials import Credentials

DAY = timedelta(days=1)


class Authority:
    """A CA whose certificates last for a day."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self.directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._certificate = (
            self._begun(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file = directory / f"{name}.pem"
        self.file.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))
        self.key_file = _written(directory / f"{name}.key", self._key)

    def _begun(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, lasts: timedelta = DAY
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * DAY)
            .not_valid_after(now + lasts)
        )

    def issue(
        self, *names: str, role: str | None = None, file: str | None = None, lasts: timedelta = DAY
    ) -> Credentials:
        """A certificate for names and IP addresses, in files called after the first of them or `file`."""
        key = ec.generate_private_key(ec.SECP256R1())
        held: list[x509.GeneralName] = [_general_name(name) for name in names]
        if role is not None:
            held.append(x509.UniformResourceIdentifier(f"headwater:role:{role}"))
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a party")])
        certificate = (
            self._begun(subject, key, lasts)
            .add_extension(x509.SubjectAlternativeName(held), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        path = self.directory / (file or names[0])
        found = Credentials(path.with_suffix(".crt"), path.with_suffix(".key"), self.file)
        _written(found.key, key)
        found.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return found


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _written(path: Path, key: ec.EllipticCurvePrivateKey) -> Path:
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return path
