"""Assertions: claims and their order, keys in every form, and files that change."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from kbatch.errors import ConfigError, NetworkError
from kbatch.sasl.assertions import Assertion, SignedAssertions, assertion_source
from tests.unit.sasl.endpoints import config
from tests.unit.sasl.secrecy import failing

NOW = 1_800_000_000.75
PASSPHRASE = "s3cret-passphrase"
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
PLAIN = serialization.NoEncryption()
PEM, DER = serialization.Encoding.PEM, serialization.Encoding.DER
PKCS8 = serialization.PrivateFormat.PKCS8
ENCRYPTED = serialization.BestAvailableEncryption(PASSPHRASE.encode())


def settings(**more: Any) -> Any:
    keys = {f"sasl_oauthbearer_assertion_{name}": value for name, value in more.items()}
    # The credentials of a client stand for the key where a test gives none.
    return config("https://localhost/token", **keys)


def parts(assertion: Assertion) -> tuple[dict[str, Any], dict[str, Any]]:
    header, claims, _ = assertion.value.split(".")
    read = [json.loads(base64.urlsafe_b64decode(part + "==")) for part in (header, claims)]
    return read[0], read[1]


def signed(**more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    pem = RSA.private_bytes(PEM, PKCS8, PLAIN).decode()
    return parts(SignedAssertions(lambda: RSA, settings(private_key_pem=pem, **more), lambda: NOW)())


def test_claims_are_those_of_the_keys_and_the_times() -> None:
    header, claims = signed(
        claim_aud="the endpoint", claim_iss="the client", claim_sub="alice", claim_exp_seconds=120
    )
    assert header == {"alg": "RS256", "typ": "JWT"}
    assert claims == {
        "aud": "the endpoint",
        "iss": "the client",
        "sub": "alice",
        "iat": 1_800_000_000,
        "exp": 1_800_000_120,
        "nbf": 1_799_999_940,
    }


def test_an_id_is_new_in_each_assertion() -> None:
    ids = {signed(claim_jti_include=True)[1]["jti"] for _ in range(5)}
    assert len(ids) == 5


def test_template_sets_claims_except_times_and_algorithm(tmp_path: Path) -> None:
    template = {
        "header": {"kid": "key 1", "alg": "none"},
        "payload": {"sub": "of the template", "resource": ["a"], "iat": 1},
    }
    path = tmp_path / "template.json"
    path.write_text(json.dumps(template))
    header, claims = signed(template_file=str(path), claim_sub="of the key", claim_aud="the endpoint")
    assert header == {"kid": "key 1", "alg": "RS256", "typ": "JWT"}
    assert (claims["sub"], claims["aud"], claims["resource"]) == ("of the template", "the endpoint", ["a"])
    assert claims["iat"] == 1_800_000_000


@pytest.mark.parametrize("text", ["", "[]", "{", '{"header": 5}', '{"payload": []}', "null"])
def test_a_template_that_is_none_is_a_config_error(tmp_path: Path, text: str) -> None:
    pem = RSA.private_bytes(PEM, PKCS8, PLAIN).decode()
    path = tmp_path / "template.json"
    path.write_text(text)
    given = settings(private_key_pem=pem, template_file=str(path))
    found = failing(lambda: assertion_source(given), ConfigError)
    assert found.startswith("sasl.oauthbearer.assertion.template.file=")
    assert "JSON" in found


@pytest.mark.parametrize("template", [{"header": {"kid": 1}}, {"payload": {"iss": 1}}])
def test_a_template_that_no_jwt_may_have_is_a_config_error(tmp_path: Path, template: dict[str, Any]) -> None:
    pem = RSA.private_bytes(PEM, PKCS8, PLAIN).decode()
    path = tmp_path / "template.json"
    path.write_text(json.dumps(template))
    given = settings(private_key_pem=pem, template_file=str(path))
    found = failing(lambda: assertion_source(given), ConfigError, BODY)
    assert found.startswith("sasl.oauthbearer.assertion.template.file: ")
    assert "must be a string" in found


def test_a_signature_is_the_keys() -> None:
    for algorithm, key in (("RS256", RSA), ("ES256", EC)):
        pem = key.private_bytes(PEM, PKCS8, PLAIN).decode()
        source = assertion_source(settings(private_key_pem=pem, algorithm=algorithm, claim_sub="alice"))
        assert source is not None
        assert jwt.decode(source().value, key.public_key(), [algorithm])["sub"] == "alice"


@pytest.mark.parametrize(
    ("data", "passphrase", "algorithm"),
    [
        (RSA.private_bytes(PEM, PKCS8, PLAIN), None, "RS256"),
        (RSA.private_bytes(PEM, serialization.PrivateFormat.TraditionalOpenSSL, PLAIN), None, "RS256"),
        (RSA.private_bytes(PEM, PKCS8, ENCRYPTED), PASSPHRASE, "RS256"),
        (base64.b64encode(RSA.private_bytes(DER, PKCS8, PLAIN)), None, "RS256"),  # what Java reads
        (base64.encodebytes(RSA.private_bytes(DER, PKCS8, PLAIN)), None, "RS256"),
        (RSA.private_bytes(DER, PKCS8, PLAIN), None, "RS256"),
        (RSA.private_bytes(DER, PKCS8, ENCRYPTED), PASSPHRASE, "RS256"),  # what Java reads
        (EC.private_bytes(PEM, PKCS8, PLAIN), None, "ES256"),
    ],
)
def test_keys_in_every_form(tmp_path: Path, data: bytes, passphrase: str | None, algorithm: str) -> None:
    path = tmp_path / "key"
    path.write_bytes(data)
    given = settings(private_key_file=str(path), private_key_passphrase=passphrase, algorithm=algorithm)
    source = assertion_source(given)
    assert source is not None
    assert parts(source())[0]["alg"] == algorithm


BODY = RSA.private_bytes(PEM, PKCS8, PLAIN).decode().splitlines()[5]


@pytest.mark.parametrize(
    ("data", "passphrase", "text"),
    [
        (RSA.private_bytes(PEM, PKCS8, ENCRYPTED), None, "the passphrase does not fit"),
        (RSA.private_bytes(PEM, PKCS8, ENCRYPTED), "s3cret-passphrase2", "the passphrase does not fit"),
        (RSA.private_bytes(PEM, PKCS8, PLAIN), PASSPHRASE, "the passphrase does not fit"),
        (RSA.private_bytes(PEM, PKCS8, PLAIN)[:500], None, "not a private key in PEM"),
        (b"no key", None, "not a private key in PEM"),
        (b"", None, "not a private key in PEM"),
        (EC.private_bytes(PEM, PKCS8, PLAIN), None, "algorithm=RS256 needs an RSA key, got EC"),
    ],
)
@pytest.mark.parametrize("by_file", [True, False])
def test_a_key_that_does_not_fit_is_a_config_error_that_hides_it(
    tmp_path: Path, data: bytes, passphrase: str | None, text: str, by_file: bool
) -> None:
    if by_file:
        path = tmp_path / "key"
        path.write_bytes(data)
        given = settings(private_key_file=str(path), private_key_passphrase=passphrase)
    else:
        given = settings(private_key_pem=data.decode(), private_key_passphrase=passphrase)
    found = failing(lambda: assertion_source(given), ConfigError, PASSPHRASE, BODY)
    assert text in found
    assert "sasl.oauthbearer.assertion." in found


def test_a_curve_that_es256_does_not_have_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(ec.generate_private_key(ec.SECP384R1()).private_bytes(PEM, PKCS8, PLAIN))
    given = settings(private_key_file=str(path), algorithm="ES256")
    assert "needs an elliptic curve key on P-256" in failing(lambda: assertion_source(given), ConfigError)


def test_files_are_read_again_when_they_change(tmp_path: Path) -> None:
    path = tmp_path / "assertion"
    path.write_text("a.b.c\n")
    source = assertion_source(settings(file=str(path)))
    assert source is not None
    assert source().value == "a.b.c"
    other = tmp_path / "new"
    other.write_text("d.e.f")
    other.replace(path)
    assert source().value == "d.e.f"
    path.unlink()
    assert "cannot be read: No such file" in failing(source, NetworkError, "d.e.f")
    path.write_text("g.h.i")
    assert source().value == "g.h.i"


@pytest.mark.parametrize("text", ["", "s3cret-a s3cret-b", "s3cret-é"])
def test_a_file_without_an_assertion_is_a_config_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "assertion"
    path.write_text(text)
    given = settings(file=str(path))
    assert "must have one JWT" in failing(lambda: assertion_source(given), ConfigError, "s3cret")


def test_a_missing_file_is_a_config_error_at_the_start() -> None:
    given = settings(file="/no/such/assertion")
    text = failing(lambda: assertion_source(given), ConfigError)
    assert text == (
        "sasl.oauthbearer.assertion.file='/no/such/assertion' cannot be read: No such file or directory"
    )
