"""The ssl.SSLContext that the ssl keys stand for, against Python's own ssl server in memory."""

from __future__ import annotations

import contextlib
import datetime
import os
import shutil
import ssl
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from kbatch.errors import ConfigError
from kbatch.network.tls import ClientTls, explained
from kbatch.network.tls_context import context_of
from tests.support.certificates import Files, needs_openssl, openssl
from tests.unit.network.networking import config

pytestmark = needs_openssl
PASSWORD = "of the store"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("certificates"))


def made(**keys: Any) -> ssl.SSLContext:
    return context_of(config(security_protocol="SSL", **keys))


def shaken(client: ssl.SSLContext, server: ssl.SSLContext, host: str = "localhost") -> ssl.SSLObject:
    """Return the server's end of a handshake in memory. Raises what either side raises."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=host)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    unfinished = [ours, theirs]
    while unfinished:
        for side in list(unfinished):
            try:
                side.do_handshake()
                unfinished.remove(side)
            except ssl.SSLWantReadError:
                pass
    return theirs


def pkcs12(files: Files, name: str) -> str:
    store = files.folder / f"{name}.p12"
    openssl("pkcs12", "-export", "-in", files.path(name), "-inkey", files.path(name, "key"), "-certfile",
            files.path("authority"), "-passout", f"pass:{PASSWORD}", "-out", store)  # fmt: skip
    return str(store)


def keytool(*arguments: str) -> None:
    subprocess.run(["keytool", *arguments], check=True, capture_output=True, timeout=60)


needs_keytool = pytest.mark.skipif(shutil.which("keytool") is None, reason="keytool makes Java's stores")


def own_keys(files: Files, how: str) -> dict[str, str]:
    """Return the client's certificate, in each of the ways of the configuration."""
    folder = files.folder
    both = folder / "both.pem"
    both.write_text(files.text("client", "key") + files.text("client"))
    openssl("pkey", "-in", files.path("client", "key"), "-aes256", "-passout", "pass:secret", "-out",
            folder / "encrypted.key")  # fmt: skip
    return {
        "one file": {"ssl_keystore_location": str(both)},
        "two files": {
            "ssl_keystore_location": files.path("client"),
            "ssl_key_location": files.path("client", "key"),
        },
        "text": {
            "ssl_keystore_certificate_chain": files.text("client"),
            "ssl_keystore_key": files.text("client", "key"),
        },
        "encrypted file": {
            "ssl_keystore_location": files.path("client"),
            "ssl_key_location": str(folder / "encrypted.key"),
            "ssl_key_password": "secret",
        },
        "PKCS12": {"ssl_keystore_location": pkcs12(files, "client"), "ssl_keystore_password": PASSWORD},
        "PKCS12 and a key": {
            "ssl_keystore_location": pkcs12(files, "client"),
            "ssl_keystore_password": PASSWORD,
            "ssl_keystore_type": "PKCS12",
            "ssl_key_password": PASSWORD,
        },
        "encrypted text": {
            "ssl_keystore_certificate_chain": files.text("client"),
            "ssl_keystore_key": (folder / "encrypted.key").read_text(),
            "ssl_key_password": "secret",
        },
    }[how]


HOWS = ["one file", "two files", "text", "encrypted file", "encrypted text", "PKCS12", "PKCS12 and a key"]


@pytest.mark.parametrize("how", HOWS)
def test_the_client_has_a_certificate(files: Files, how: str) -> None:
    context = made(ssl_truststore_certificates=files.text("authority"), **own_keys(files, how))
    server = files.server()
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_verify_locations(files.path("authority"))
    certificate: Any = shaken(context, server).getpeercert()
    assert certificate["subject"] == ((("commonName", "client"),),)


def test_a_context_of_the_users_own_is_used_as_it_is(files: Files) -> None:
    own = ssl.create_default_context(cafile=files.path("authority"))
    keys = {"security_protocol": "SASL_SSL", "sasl_kerberos_service_name": "kafka"}
    assert context_of(config(**keys, ssl_context=own)) is own
    with pytest.raises(ConfigError, match=r"ssl_context must be an ssl\.SSLContext"):
        context_of(config(security_protocol="SSL", ssl_context="default"))


def test_by_default_the_systems_authorities_and_two_versions() -> None:
    context = context_of(config(security_protocol="SSL"))
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.maximum_version is ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"ssl_truststore_location": "/no/such.pem"}, r"ssl\.truststore\.location \(/no/such\.pem\)"),
        ({"ssl_truststore_location": __file__}, r"ssl\.truststore\.location"),
        ({"ssl_truststore_certificates": "no PEM"}, r"ssl\.truststore\.certificates"),
        ({"ssl_keystore_location": "/no/such.pem"}, r"ssl\.keystore\.location \(/no/such\.pem\)"),
        ({"ssl_keystore_location": __file__, "ssl_key_location": __file__}, r"and ssl\.key\.location"),
        ({"ssl_keystore_certificate_chain": "x", "ssl_keystore_key": "y"}, r"ssl\.keystore\.key"),
        (
            {"ssl_truststore_certificates": r"-----BEGIN CERTIFICATE-----\nx\n"},
            r"ssl\.truststore\.certificates \(PEM text, with '\\n' as two characters",
        ),
        (
            {"ssl_keystore_certificate_chain": r"x\ny", "ssl_keystore_key": "y"},
            r"ssl\.keystore\.key \(PEM text, with '\\n' as two characters",
        ),
        ({"ssl_cipher_suites": "NO_SUCH_CIPHER"}, r"ssl\.cipher\.suites \(NO_SUCH_CIPHER\)"),
    ],
)
def test_what_cannot_be_used_is_named(keys: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        made(**keys)


def test_missing_key_password_never_prompts_on_the_terminal(files: Files) -> None:
    keys = own_keys(files, "encrypted file")
    del keys["ssl_key_password"]
    with pytest.raises(ConfigError, match=r"ssl\.key\.password"):
        made(**keys)
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location and ssl\.key\.location"):
        context_of(config(security_protocol="SSL", ssl_key_password="wrong", **keys))


# Trust


def test_folder_of_certificates_needs_no_hashed_names(files: Files, tmp_path: Path) -> None:
    (tmp_path / "README").write_text("no certificate")
    (tmp_path / "gone.pem").symlink_to(tmp_path / "nowhere")
    (tmp_path / "nested").mkdir()
    with (tmp_path / "database").open("wb") as large:
        large.truncate(1 << 40)  # which takes no space, and is not read
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.location .*has no file with certificates"):
        made(ssl_truststore_location=str(tmp_path))
    shutil.copy(files.path("authority"), tmp_path / "ca.crt")
    shaken(made(ssl_truststore_location=str(tmp_path)), files.server())


def test_folder_with_openssl_hashed_names(files: Files, tmp_path: Path) -> None:
    shutil.copy(files.path("authority"), tmp_path / "authority.pem")
    openssl("rehash", tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    shaken(made(ssl_truststore_location=str(tmp_path)), files.server())


def test_trusted_certificate_of_the_broker_needs_no_authority(files: Files) -> None:
    """Java accepts these; OpenSSL by default accepts only self-issued certificates as trust anchors."""
    shaken(made(ssl_truststore_location=files.path("broker")), files.server())
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken(made(ssl_truststore_location=files.path("client")), files.server())


def test_trust_store_as_pkcs12(files: Files) -> None:
    store = pkcs12(files, "client")  # with the authority's certificate
    shaken(made(ssl_truststore_location=store, ssl_truststore_password=PASSWORD), files.server())


@needs_keytool
def test_trust_store_that_java_made(files: Files, tmp_path: Path) -> None:
    store = str(tmp_path / "trust.p12")
    keytool("-importcert", "-noprompt", "-file", files.path("authority"), "-alias", "ca", "-keystore", store,
            "-storetype", "PKCS12", "-storepass", "changeit")  # fmt: skip
    shaken(made(ssl_truststore_location=store, ssl_truststore_password="changeit"), files.server())


@needs_keytool
@pytest.mark.parametrize("name", ["own.p12", "own.jks"])
def test_key_store_that_java_made(name: str, tmp_path: Path) -> None:
    store = str(tmp_path / name)
    keytool("-genkeypair", "-keyalg", "EC", "-dname", "CN=java", "-keystore", store, "-storetype", "PKCS12",
            "-storepass", "changeit")  # fmt: skip
    made(ssl_keystore_location=store, ssl_keystore_password="changeit")
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.password may be wrong"):
        made(ssl_keystore_location=store, ssl_keystore_password="changed")


@needs_keytool
@pytest.mark.parametrize("kind", ["JKS", "JCEKS"])
def test_java_format_under_another_name_is_refused_with_command(kind: str, tmp_path: Path) -> None:
    store = tmp_path / "own.store"
    keytool("-genkeypair", "-keyalg", "EC", "-dname", "CN=java", "-keystore", str(store), "-storetype", kind,
            "-storepass", "changeit", "-keypass", "changeit")  # fmt: skip
    with pytest.raises(ConfigError, match=r"keytool -importkeystore -srckeystore \S*own\.store"):
        made(ssl_keystore_location=str(store))
    store = store.rename(tmp_path / "its own.jks")
    with pytest.raises(ConfigError, match=r"-srckeystore '\S*its own\.jks' -destkeystore '\S*its own\.p12'"):
        made(ssl_keystore_location=str(store), ssl_keystore_password="changeit")


def test_pkcs12_store_without_its_password_or_key(files: Files, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.password is missing"):
        made(ssl_keystore_location=pkcs12(files, "client"))
    with pytest.raises(
        ConfigError, match=r"ssl\.truststore\.location .* is a PEM file: set ssl\.truststore\.type"
    ):
        made(ssl_truststore_location=files.path("authority"), ssl_truststore_type="PKCS12")
    no_key = str(tmp_path / "no-key.p12")
    openssl("pkcs12", "-export", "-nokeys", "-in", files.path("client"), "-passout", f"pass:{PASSWORD}",
            "-out", no_key)  # fmt: skip
    with pytest.raises(ConfigError, match=r"needs a private key and its certificate"):
        made(ssl_keystore_location=no_key, ssl_keystore_password=PASSWORD)


def test_pkcs12_store_without_cryptography(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cryptography.hazmat.primitives.serialization", None)
    with pytest.raises(ConfigError, match=r"pip install 'kbatch-kafka\[pkcs12\]'"):
        made(ssl_keystore_location=pkcs12(files, "client"), ssl_keystore_password=PASSWORD)


def revocations(files: Files, *, days: int = 1, revoked: bool = True) -> str:
    """Return the authority's list, which has the broker's certificate or none."""
    authority = x509.load_pem_x509_certificate(Path(files.path("authority")).read_bytes())
    key: Any = serialization.load_pem_private_key(Path(files.path("authority", "key")).read_bytes(), None)
    broker = x509.load_pem_x509_certificate(Path(files.path("broker")).read_bytes())
    now = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=3)
    listed = x509.CertificateRevocationListBuilder().issuer_name(authority.subject).last_update(now)
    listed = listed.next_update(now + datetime.timedelta(days=3 + days))
    if revoked:
        entry = x509.RevokedCertificateBuilder().serial_number(broker.serial_number).revocation_date(now)
        listed = listed.add_revoked_certificate(entry.build())
    path = files.folder / "revoked.pem"
    path.write_bytes(listed.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return str(path)


def test_revoked_certificates_are_refused(files: Files) -> None:
    def refusal(trusted: str, revoked: str) -> str:
        context = made(ssl_truststore_location=files.path(trusted), ssl_crl_location=revoked)
        with pytest.raises(ssl.SSLCertVerificationError) as raised:
            shaken(context, files.server(trusted if trusted == "stranger" else "broker"))
        return explained(raised.value)

    keys = {"ssl_truststore_location": files.path("authority")}
    shaken(made(ssl_crl_location=revocations(files, revoked=False), **keys), files.server())
    assert "its authority has revoked it" in refusal("authority", revocations(files))
    assert "ssl.crl.location has expired" in refusal("authority", revocations(files, days=-1))
    assert "no list of its authority" in refusal("stranger", revocations(files))
    with pytest.raises(ConfigError, match=r"ssl\.crl\.location \(\S+\) has no revocation list"):
        made(ssl_crl_location=files.path("authority"), **keys)
    with pytest.raises(ConfigError, match=r"ssl\.crl\.location \(/no/such\.pem\)"):
        made(ssl_crl_location="/no/such.pem", **keys)


# Keys as text


def memory_files() -> list[str]:
    """Return the names of the files in memory that this process has open."""
    names = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # others may close theirs meanwhile
            names.append(str(descriptor.readlink()))
    return [name for name in names if name.startswith("/memfd:")]


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="files in memory are Linux's")
@pytest.mark.parametrize("how", ["text", "encrypted text", "PKCS12"])
def test_key_as_text_touches_no_disk(files: Files, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = own_keys(files, how)
    monkeypatch.setattr(tempfile, "tempdir", "/no/such/folder")
    made(**keys)
    assert not memory_files()


def test_key_as_text_without_memory_files_is_in_a_private_file(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    modes = []
    load = ssl.SSLContext.load_cert_chain

    def noting(context: ssl.SSLContext, path: str, *rest: Any) -> None:
        modes.append((Path(path).parent, Path(path).stat().st_mode & 0o777))
        load(context, path, *rest)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", noting)
    made(**own_keys(files, "text"))
    assert modes == [(tmp_path, 0o600)]
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(tempfile, "tempdir", "/no/such/folder")
    with pytest.raises(
        ConfigError, match=r"ssl\.keystore\.key \(PEM text\) cannot be used: .*/no/such/folder"
    ):
        made(**own_keys(files, "text"))


# Cipher suites


def suites_of(context: ssl.SSLContext) -> tuple[list[str], list[str]]:
    """(those of TLS 1.3, all others)"""
    names = [(cipher["protocol"] == "TLSv1.3", cipher["name"]) for cipher in context.get_ciphers()]
    return [name for is_new, name in names if is_new], [name for is_new, name in names if not is_new]


ALL_OF_TLS_1_3 = "TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256,TLS_AES_128_GCM_SHA256"
OF_TLS_1_2 = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
V2, V3 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize(
    ("suites", "openssl_names", "versions"),
    [
        (OF_TLS_1_2, ["ECDHE-RSA-AES256-GCM-SHA384"], (V2, V2)),
        (f"{ALL_OF_TLS_1_3},{OF_TLS_1_2}", ["ECDHE-RSA-AES256-GCM-SHA384"], (V2, V3)),
        (ALL_OF_TLS_1_3, None, (V3, V3)),
        (f"{OF_TLS_1_2},TLS_EMPTY_RENEGOTIATION_INFO_SCSV", ["ECDHE-RSA-AES256-GCM-SHA384"], (V2, V2)),
        ("SSL_RSA_WITH_AES_128_CBC_SHA", ["AES128-SHA"], (V2, V2)),
        ("ECDHE-RSA-AES256-GCM-SHA384", ["ECDHE-RSA-AES256-GCM-SHA384"], (V2, V3)),
        (f"{OF_TLS_1_2},AES128-SHA", ["ECDHE-RSA-AES256-GCM-SHA384", "AES128-SHA"], (V2, V3)),
    ],
)
def test_cipher_suites_by_iana_and_openssl_names(
    suites: str, openssl_names: list[str] | None, versions: tuple[ssl.TLSVersion, ssl.TLSVersion]
) -> None:
    context = made(ssl_cipher_suites=suites)
    assert (context.minimum_version, context.maximum_version) == versions
    if openssl_names is not None:
        assert suites_of(context)[1] == openssl_names


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"ssl_cipher_suites": "TLS_RSA_WITH_ROT13"}, r"OpenSSL \S+ .*has no suite TLS_RSA_WITH_ROT13"),
        (
            {"ssl_cipher_suites": OF_TLS_1_2, "ssl_enabled_protocols": "TLSv1.3"},
            r"no suite for the versions of ssl\.enabled\.protocols \(TLSv1\.3\)",
        ),
        (
            {"ssl_cipher_suites": "TLS_AES_128_GCM_SHA256", "ssl_enabled_protocols": "TLSv1.2"},
            r"no suite for the versions",
        ),
    ],
)
def test_cipher_suites_that_cannot_be_used_are_named(keys: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        made(**keys)


def test_choice_among_suites_of_tls_1_3_takes_a_later_python() -> None:
    suites = "TLS_AES_128_GCM_SHA256"
    if hasattr(ssl.SSLContext, "set_ciphersuites"):
        assert suites_of(made(ssl_cipher_suites=suites))[0] == [suites]
        return
    with pytest.raises(
        ConfigError, match=r"Python 3\.15 .*TLS_AES_256_GCM_SHA384, TLS_CHACHA20_POLY1305_SHA256"
    ):
        made(ssl_cipher_suites=suites)


def test_unchanged_files_keep_the_context(files: Files) -> None:
    tls = ClientTls(config(**files.trusted()))
    contexts = {id(tls.handshake("localhost", 9092, "the broker")._context) for _ in range(3)}
    assert len(contexts) == 1
