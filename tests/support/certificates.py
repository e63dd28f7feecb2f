"""Certificates that openssl makes for a test."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from kbatch.network.tls_channel import TlsChannel

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")
NAMES = "subjectAltName=DNS:localhost,DNS:kafka1"


def step_at_once(channel: TlsChannel) -> None:
    """Take a step of a channel's handshake on the calling thread."""
    channel.take_step()
    channel.end_step()


def openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)


class Files:
    """An authority, a broker's and a client's certificate that it issued, and one of an unknown authority."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("authority", "stranger"):
            self.make(name, "-x509", "-days", "2", "-addext", "basicConstraints=critical,CA:TRUE")
        for name in ("broker", "client"):
            self.make(name)
            signer = (
                "-CA",
                self.path("authority"),
                "-CAkey",
                self.path("authority", "key"),
                "-CAcreateserial",
            )
            request = ("-in", self.path(name, "csr"), "-copy_extensions", "copy")
            openssl("x509", "-req", *request, *signer, "-days", "2", "-out", self.path(name))

    def make(self, name: str, *options: str) -> None:
        kind = "pem" if "-x509" in options else "csr"
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        files = ("-keyout", self.path(name, "key"), "-out", self.path(name, kind))
        openssl("req", *key, *files, "-subj", f"/CN={name}", "-addext", NAMES, *options)

    def path(self, name: str, kind: str = "pem") -> str:
        return str(self.folder / f"{name}.{kind}")

    def text(self, name: str, kind: str = "pem") -> str:
        return Path(self.path(name, kind)).read_text()

    def server(self, name: str = "broker") -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path(name), self.path(name, "key"))
        return context

    def trusted(self) -> dict[str, str]:
        return {"security_protocol": "SSL", "ssl_truststore_location": self.path("authority")}
