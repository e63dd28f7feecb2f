"""Stores of certificates and keys: PEM, PKCS12, folders, and files that are on no disk.

PKCS12 stores need the package cryptography. Stores in Java's own formats are refused, with the command that
converts them.
"""

import os
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import NamedTuple

from kbatch.distribution import pip_install
from kbatch.errors import ConfigError

_PEM_MARK = b"-----BEGIN "
_CERTIFICATES = (b"-----BEGIN CERTIFICATE", b"-----BEGIN X509 CERT", b"-----BEGIN TRUSTED CERT")
# A larger file in a folder is something else; all authorities of a system take a fifth of a MiB.
_MOST_PEM_BYTES = 16 << 20
# The first bytes of Java's formats (sun.security.provider.JavaKeyStore, com.sun.crypto.provider.JceKeyStore).
_JAVA_FORMATS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")


class Pkcs12(NamedTuple):
    """The contents of a PKCS12 store, as PEM text; `key` is None if it has no private key."""

    certificates: str
    key: str | None


def read_store(location: str, kind: str, password: str | None, key: str) -> Pkcs12 | None:
    """Return what a PKCS12 store contains, or None for a file that OpenSSL reads by itself.

    The file's content decides: Java, too, reads a PKCS12 store whose type was given as JKS.

    Parameters
    ----------
    location, kind, password
        The store's location, type and password by the configuration.
    key : str
        `ssl.keystore` or `ssl.truststore`, for errors.

    Raises
    ------
    ConfigError
        For a store of Java's own format, a wrong password, or without the package cryptography.
    OSError
        If the file cannot be read.
    """
    data = Path(location).read_bytes()
    if data[:4] in _JAVA_FORMATS:
        raise ConfigError(_conversion(key, location))
    if _PEM_MARK in data:
        if kind == "PKCS12":
            raise ConfigError(f"{key}.location ({location}) is a PEM file: set {key}.type=PEM")
        return None
    # DER's SEQUENCE
    return _read_pkcs12(data, location, password, key) if data[:1] == b"\x30" or kind == "PKCS12" else None


def _conversion(store: str, location: str) -> str:
    """Return the error for a store in Java's own format: `store` is ssl.keystore or ssl.truststore."""
    target = str(PurePath(location).with_suffix(".p12"))
    command = f"keytool -importkeystore -srckeystore {shlex.quote(location)}"
    return (
        f"{store}.location={location!r} is a JKS store, which Python cannot read; convert it with "
        f"`{command} -destkeystore {shlex.quote(target)} -deststoretype PKCS12` and set {store}.location="
        f"{target} and {store}.type=PKCS12"
    )


def _read_pkcs12(data: bytes, location: str, password: str | None, key: str) -> Pkcs12:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError as error:
        raise ConfigError(
            f"{key}.location ({location}) is a PKCS12 store, which takes the package cryptography: "
            f"{pip_install('pkcs12')}"
        ) from error
    try:
        store = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except (ValueError, TypeError) as error:
        given = "is missing" if password is None else "may be wrong"
        raise ConfigError(
            f"{key}.location ({location}) cannot be read as a PKCS12 store: {error}; {key}.password {given}"
        ) from error
    pem = serialization.Encoding.PEM
    certificates = [*([store.cert] if store.cert else ()), *store.additional_certs]
    text = "".join(each.certificate.public_bytes(pem).decode() for each in certificates)
    if store.key is None:
        return Pkcs12(text, None)
    private = store.key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Pkcs12(text, private.decode())


def certificate_files(location: str) -> list[str]:
    """Return the location itself, or for a folder its files with certificates as PEM.

    Names of files do not matter, so that a folder needs no links by OpenSSL's hashes; if it has them, the
    files behind them count.

    Raises
    ------
    ValueError
        For a folder without certificates.
    OSError
        If a file cannot be read.
    """
    folder = Path(location)
    if not folder.is_dir():
        return [location]
    files = sorted({path.resolve() for path in folder.iterdir() if path.is_file()})
    files = [path for path in files if path.stat().st_size <= _MOST_PEM_BYTES]
    found = [str(path) for path in files if any(mark in path.read_bytes() for mark in _CERTIFICATES)]
    if not found:
        raise ValueError("the folder has no file with certificates as PEM")
    return found


Stamp = tuple[object, ...] | None


def stamp(location: str) -> tuple[Stamp, ...]:
    """Return what changes if a file does, or a folder or one of its files."""
    path = Path(location)
    try:
        files = sorted(path.iterdir()) if path.is_dir() else ()
    except OSError:
        files = ()
    return tuple(map(_stamp, (path, *files)))


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev


@contextmanager
def private_file(text: str) -> Iterator[str]:
    """Yield the path of a file with the text, since Python's ssl loads keys only from files.

    The file is in memory where the system has such files (Linux), and elsewhere in the folder for temporary
    files, readable by this user only, until the end of the block.

    Raises
    ------
    OSError
        If there is neither.
    """
    try:
        descriptor = os.memfd_create("kbatch", os.MFD_CLOEXEC)
    except (AttributeError, OSError):  # another system, or one that forbids it
        with tempfile.NamedTemporaryFile("w", prefix="kbatch-") as file:
            file.write(text)
            file.flush()
            yield file.name
        return
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        yield f"/proc/self/fd/{descriptor}"
