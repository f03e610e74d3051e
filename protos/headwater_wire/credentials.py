"""Certificates in files: both sides of a stream present one, and check the other's against the same CA.

The files are read again when they change: by a server at its next handshake, by a client at its next channel.
A stream that is open stays as it is.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from headwater.errors import Invalid, Problem

log = logging.getLogger(__name__)
FIELDS = ("certificate", "key", "ca")
# What tells one state of the files from another.
Signature = tuple[tuple[int, int, int], ...]
# Key, certificate with its chain, CA: PEM.
Material = tuple[bytes, bytes, bytes]


@dataclass(frozen=True, slots=True)
class Credentials:
    """The files of one party: its certificate (PEM, with its chain), the key to it, the CA of all parties."""

    certificate: Path
    key: Path
    ca: Path

    @classmethod
    def of(cls, given: Mapping[str, Any], section: str = "tls") -> Credentials | None:
        """As configured, and usable; None if nothing is given."""
        named = {field: value for field, value in given.items() if value is not None}
        if not named:
            return None
        problems = [
            Problem(f"{section}.{field}", "is not known", f"give {', '.join(FIELDS)}")
            for field in named
            if field not in FIELDS
        ]
        for field in FIELDS:
            if field not in named:
                problems.append(Problem(f"{section}.{field}", "is missing", "give all three files, or none"))
            elif not isinstance(named[field], str) or not named[field]:
                problems.append(Problem(f"{section}.{field}", f"is {named[field]!r}", "give a path"))
        if not problems:
            found = cls(*(Path(named[field]) for field in FIELDS))
            problems = found._problems(section)
            if not problems:
                return found
        raise Invalid("the certificates cannot be used", problems)

    def _problems(self, section: str) -> list[Problem]:
        problems = []
        for field in FIELDS:
            path: Path = getattr(self, field)
            try:
                path.read_bytes()
            except OSError as error:
                message = f"{path} cannot be read ({error.strerror})"
                problems.append(Problem(f"{section}.{field}", message, "give a PEM file that can be read"))
        if problems:
            return problems
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            # Without a password of its own OpenSSL would ask the terminal for one.
            context.load_cert_chain(self.certificate, self.key, password=lambda: b"")
        except (OSError, ValueError) as error:
            message = f"{self.certificate} and {self.key} are no pair ({error})"
            remedy = "give a certificate in PEM and the key that it was made for, without a password"
            problems.append(Problem(f"{section}.certificate", message, remedy))
        try:
            context.load_verify_locations(self.ca)
        except (OSError, ValueError) as error:
            problems.append(Problem(f"{section}.ca", f"{self.ca} holds no certificate ({error})", "give PEM"))
        return problems

    def server(self, *, mutual: bool = True) -> grpc.ServerCredentials:
        """For a server: whoever connects must have a certificate of the CA, if it is to be mutual."""
        signature, material = self._read()
        keeper = _Keeper(self, signature)
        return grpc.dynamic_ssl_server_credentials(
            _configuration(material),
            keeper.fetch,  # type: ignore[arg-type]  # the stubs forget that None means no change
            require_client_authentication=mutual,
        )

    def channel(self) -> grpc.ChannelCredentials:
        """For one channel: made from the files as they are now."""
        _, (key, certificate, ca) = self._read()
        return grpc.ssl_channel_credentials(ca, key, certificate)

    def signature(self) -> Signature:
        found = (path.stat() for path in (self.certificate, self.key, self.ca))
        return tuple((each.st_ino, each.st_mtime_ns, each.st_size) for each in found)

    def _read(self) -> tuple[Signature, Material]:
        """The files, all of one state: while they are being replaced, the next look is another."""
        before = self.signature()
        while True:
            material = (self.key.read_bytes(), self.certificate.read_bytes(), self.ca.read_bytes())
            after = self.signature()
            if after == before:
                return before, material
            before = after


class _Keeper:
    """What a running server has of the files; gRPC asks at every handshake, in a thread of its own."""

    def __init__(self, credentials: Credentials, signature: Signature) -> None:
        self._credentials, self._signature = credentials, signature
        self._failing = False

    def fetch(self) -> grpc.ServerCertificateConfiguration | None:
        try:
            if self._credentials.signature() == self._signature:
                return None
            # Half of a new pair would lock everybody out: the old one stays until both are there.
            problems = self._credentials._problems("tls")
            if problems:
                raise Invalid("the new certificates cannot be used", problems)
            self._signature, material = self._credentials._read()
        except (OSError, Invalid) as error:
            if not self._failing:
                log.warning("the certificates stay as they were", extra={"problem": str(error)})
            self._failing = True
            return None
        self._failing = False
        log.info("certificates read again", extra={"certificate": str(self._credentials.certificate)})
        return _configuration(material)


def _configuration(material: Material) -> grpc.ServerCertificateConfiguration:
    key, certificate, ca = material
    return grpc.ssl_server_certificate_configuration([(key, certificate)], ca)
