"""A certificate authority, and the files that clients and brokers read: PEM and PKCS12."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

from tests.support.secrets import register_pem

# Certificates are valid from some time ago, so that clocks may differ.
BEFORE = datetime.timedelta(minutes=5)
LIFETIME = datetime.timedelta(days=2)
LOOPBACK = ipaddress.ip_address("127.0.0.1")
SUBJECT = x509.oid.NameOID.COMMON_NAME


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(SUBJECT, name)])


class Authority:
    """Issue certificates into a folder.

    `NAME.crt`, `NAME.key` (PKCS8) and `NAME.pem` (both, and the authority: what Kafka's PEM store wants)
    belong to a name; `NAME.p12` holds the same. `ca.pem` and `ca.p12` are trust stores.
    """

    def __init__(self, folder: Path, store_password: str, name: str = "ca") -> None:
        self.folder = folder
        self._password = serialization.BestAvailableEncryption(store_password.encode())
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._signed(_named(name), self._key, LIFETIME, is_authority=True)
        self.path("ca.pem").write_bytes(self._pem(self._certificate))
        trusted = pkcs12.PKCS12Certificate(self._certificate, b"ca")
        store = pkcs12.serialize_java_truststore([trusted], self._password)
        self.path("ca.p12").write_bytes(store)

    def path(self, file: str) -> Path:
        return self.folder / file

    def issue(
        self, name: str, *, subject: str | None = None, lifetime: datetime.timedelta = LIFETIME
    ) -> None:
        """Write a new key and certificate under `name`, over older ones; a negative lifetime has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._signed(_named(subject or name), key, lifetime)
        plain = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        register_pem(plain)
        chain = self._pem(certificate) + self._pem(self._certificate)
        store = pkcs12.serialize_key_and_certificates(
            name.encode(), key, certificate, [self._certificate], self._password
        )
        contents = {"crt": self._pem(certificate), "key": plain, "pem": plain + chain, "p12": store}
        for suffix, content in contents.items():
            partial = self.path(f"{name}.{suffix}.partial")
            partial.write_bytes(content)
            partial.replace(self.path(f"{name}.{suffix}"))

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        lifetime: datetime.timedelta,
        *,
        is_authority: bool = False,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        names = [x509.DNSName("localhost"), x509.IPAddress(LOOPBACK)]
        issuer = subject if is_authority else self._certificate.subject
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(now, now + lifetime) - BEFORE)
            .not_valid_after(now + lifetime)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        return builder.sign(self._key, hashes.SHA256())

    @staticmethod
    def _pem(certificate: x509.Certificate) -> bytes:
        return certificate.public_bytes(serialization.Encoding.PEM)
