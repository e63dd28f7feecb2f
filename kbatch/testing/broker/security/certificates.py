"""Certificates of the embedded broker: an authority of its own, made when it starts, or files that exist."""

from __future__ import annotations

import datetime
import ssl
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kbatch.distribution import pip_install
from kbatch.testing.broker.security.listeners import Listener

if TYPE_CHECKING:
    from _typeshed import StrPath
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate, GeneralName

LIFETIME = datetime.timedelta(days=30)
CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
# The names of X.500 attributes in a principal, as Java writes them (RFC 2253); others are not shown.
ATTRIBUTES = {
    "commonName": "CN",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "countryName": "C",
    "domainComponent": "DC",
    "userId": "UID",
}


class PemPair(NamedTuple):
    """A certificate chain and its private key, as PEM text."""

    certificate: str
    key: str


@dataclass(frozen=True)
class TlsFiles:
    """PEM files for the broker's TLS listeners.

    Attributes
    ----------
    certificate : path
        The broker's certificate chain.
    key : path
        Its private key, not encrypted.
    authority : path
        Authorities that clients trust, and that sign the certificates of clients.
    """

    certificate: StrPath
    key: StrPath
    authority: StrPath


class Authority:
    """A certificate authority, which signs for brokers and clients; needs `cryptography`."""

    def __init__(self) -> None:
        import_cryptography("TLS")
        self._key = _new_key()
        self._certificate = _certificate("kbatch test authority", self._key, None, (), is_authority=True)

    @cached_property
    def pem(self) -> str:
        return _pem(self._certificate)

    def issue(self, name: str, hosts: Iterable[str] = ()) -> PemPair:
        """Sign a certificate for the subject CN=`name`, valid for `hosts`, names or addresses."""
        from cryptography.hazmat.primitives import serialization

        key = _new_key()
        certificate = _certificate(name, key, (self._certificate, self._key), hosts, is_authority=False)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return PemPair(_pem(certificate) + self.pem, private.decode())


class BrokerTls:
    """The certificates of a broker's TLS listeners, and of its clients."""

    def __init__(self, files: TlsFiles | None, hosts: Iterable[str]) -> None:
        self._files = files
        self._hosts = tuple(dict.fromkeys(("localhost", "127.0.0.1", "::1", *hosts)))

    @cached_property
    def _authority(self) -> Authority:
        return Authority()

    @cached_property
    def authority_pem(self) -> str:
        """Return the certificates that clients trust, as PEM text."""
        return self._authority.pem if self._files is None else Path(self._files.authority).read_text()

    def client(self, name: str) -> PemPair:
        """Return a certificate of the subject CN=`name`, for client authentication."""
        if self._files is not None:
            raise ValueError(
                "TlsFiles has no key of the authority to sign a client's certificate with; use tls=True"
            )
        return self._authority.issue(name, ("localhost",))

    def server_context(self, listener: Listener) -> ssl.SSLContext:
        """Return the context of a listener; raises OSError or ssl.SSLError for files that are no use."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = CLIENT_AUTH[listener.client_auth]
        context.load_verify_locations(cadata=self.authority_pem)
        if self._files is not None:
            context.load_cert_chain(self._files.certificate, self._files.key)
            return context
        with tempfile.TemporaryDirectory(prefix="kbatch-broker-") as folder:
            path = Path(folder) / "broker.pem"
            path.write_text("".join(self._broker_pair))
            context.load_cert_chain(path)
        return context

    @cached_property
    def _broker_pair(self) -> PemPair:
        return self._authority.issue("kbatch test broker", self._hosts)


def principal_of(certificate: dict[str, Any] | None) -> str | None:
    """Return the principal's name of a verified certificate (`SSLSocket.getpeercert`), None without one."""
    if not certificate:
        return None
    parts = [
        "+".join(f"{ATTRIBUTES[name]}={_escaped(value)}" for name, value in part if name in ATTRIBUTES)
        for part in reversed(certificate["subject"])
    ]
    return ",".join(part for part in parts if part)


def import_cryptography(what: str) -> None:
    """Raise ModuleNotFoundError, which says how to install it, if `cryptography` is missing."""
    try:
        import_module("cryptography.x509")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the embedded broker needs cryptography for {what}: {pip_install('testing')}",
            name="cryptography",
        ) from error


def _escaped(value: str) -> str:
    for character in '\\,+"<>;':
        value = value.replace(character, "\\" + character)
    return value


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _pem(certificate: Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode()


def _certificate(
    name: str,
    key: EllipticCurvePrivateKey,
    signer: tuple[Certificate, EllipticCurvePrivateKey] | None,
    hosts: Iterable[str],
    *,
    is_authority: bool,
) -> Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import NameOID

    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    signing_key = signer[1] if signer else key
    authority_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key())
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer[0].subject if signer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(authority_id, critical=False)
    )
    names = [_general_name(host) for host in hosts]
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(signing_key, hashes.SHA256())


def _general_name(host: str) -> GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
