"""AWS_MSK_IAM: tokens compared with those of AWS's signer, regions, and credentials that fail."""

from __future__ import annotations

import base64
import datetime
import io
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import botocore.auth
import botocore.credentials
import botocore.exceptions
import pytest
from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.config import ProducerConfig
from kbatch.errors import AuthenticationError, NetworkError
from kbatch.sasl import mechanism_of
from kbatch.sasl.msk import AwsCredentials, SignedTokens, region_of, signed_token
from tests.unit.sasl.secrecy import failing

NOW = 1_800_000_000.75
ACCESS_KEY, SECRET_KEY = "AKIDEXAMPLE", "s3cret/MI+K7MDENG+bPxRfiCYEXAMPLEKEY"
SESSION = "s3cret-FwoGZXIvYXdzEJr//////////wEaDG+tok/en=="
ENVIRONMENT = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_SESSION_TOKEN")


@pytest.fixture(autouse=True)
def _aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide this machine's AWS settings: variables, files and metadata service."""
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


def both(region: str, keys: botocore.credentials.Credentials, now: float) -> tuple[str, str, int]:
    """Return our token at that moment, the official signer's, and when it expires in milliseconds."""

    class Provider(botocore.credentials.CredentialProvider):
        def load(self) -> botocore.credentials.Credentials:
            return keys

    def frozen(remove_tzinfo: bool = True) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(now, datetime.UTC).replace(tzinfo=None)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(botocore.auth, "get_current_datetime", frozen)
        token, expires_ms = MSKAuthTokenProvider.generate_auth_token_from_credentials_provider(
            region, Provider()
        )
        return signed_token(region, keys, MSKAuthTokenProvider.__get_user_agent__()), token, expires_ms


@settings(deadline=None)
@given(
    region=st.sampled_from(["eu-central-1", "us-gov-west-1", "cn-north-1"]),
    access_key=st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", min_size=16, max_size=20),
    secret_key=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1),
    session=st.none() | st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1),
    now=st.floats(0, 4e9).map(lambda now: round(now, 3)),
)
def test_tokens_are_those_of_awss_signer_to_the_byte(
    region: str, access_key: str, secret_key: str, session: str | None, now: float
) -> None:
    keys = botocore.credentials.Credentials(access_key, secret_key, session)
    ours, token, expires_ms = both(region, keys, now)
    assert ours == token
    assert expires_ms == (int(now) + 900) * 1000


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("b-1.demo.abc123.c2.kafka.eu-central-1.amazonaws.com", "eu-central-1"),
        ("boot-xyz.c1.kafka-serverless.us-east-1.amazonaws.com", "us-east-1"),
        ("b-2.demo.abc123.c2.kafka.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("B-1.demo.abc123.C2.KAFKA.us-gov-west-1.amazonaws.com.", "us-gov-west-1"),
    ],
)
def test_broker_name_gives_the_region(host: str, region: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "another")
    assert region_of(host) == region


def test_environment_gives_the_region_of_other_names(monkeypatch: pytest.MonkeyPatch) -> None:
    text = failing(lambda: region_of("kafka.example.com"), AuthenticationError)
    assert "'kafka.example.com' does not name; set the environment variable AWS_REGION" in text
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert region_of("kafka.example.com") == "eu-west-1"
    monkeypatch.setenv("AWS_REGION", "eu-west-2")
    assert region_of("evil.kafka.eu-west-1.amazonaws.com.example.com") == "eu-west-2"


def config(**settings: Any) -> ProducerConfig:
    return ProducerConfig(
        bootstrap_servers="b-1.demo.abc.c2.kafka.eu-central-1.amazonaws.com:9098",
        security_protocol="SASL_SSL",
        sasl_mechanism="AWS_MSK_IAM",
        **settings,
    )


def test_mechanism_speaks_oauthbearer_and_refreshes_the_token() -> None:
    mechanism = mechanism_of(config(), lambda coroutine: None)
    assert mechanism.name == "OAUTHBEARER"
    host = "b-1.demo.abc.c2.kafka.eu-central-1.amazonaws.com"
    message = mechanism.exchange(host).step(None) or b""
    assert message.startswith(b"n,,\x01auth=Bearer ")
    url = base64.urlsafe_b64decode(message.split(b" ", 1)[1].rstrip(b"\x01") + b"==").decode()
    assert urlsplit(url).hostname == "kafka.eu-central-1.amazonaws.com"
    assert f"X-Amz-Credential={ACCESS_KEY}%2F" in url
    assert "&User-Agent=kbatch%2F" in url
    assert SECRET_KEY not in url
    assert mechanism.exchange(host).step(None) == message
    assert mechanism.refresh_deadline_ns() < 2**63 - 1


def test_an_empty_session_token_is_none() -> None:
    keys = botocore.credentials.Credentials(ACCESS_KEY, SECRET_KEY, "")
    assert "Token" not in base64.urlsafe_b64decode(signed_token("us-east-1", keys) + "==").decode()


def signed(**settings: Any) -> SignedTokens:
    return SignedTokens("eu-central-1", AwsCredentials(config(**settings)), lambda: NOW)


def test_a_token_lives_for_fifteen_minutes() -> None:
    token = signed()()
    assert token.expires_at == int(NOW) + 900
    assert token.principal == ACCESS_KEY


def test_a_profile_has_other_credentials(tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text(
        f"[team]\naws_access_key_id = AKIDTEAM\naws_secret_access_key = {SECRET_KEY}\n"
    )
    assert signed(sasl_aws_profile_name="team")().principal == "AKIDTEAM"
    text = failing(signed(sasl_aws_profile_name="nobody"), AuthenticationError, SECRET_KEY)
    assert text == "AWS gave no credentials: The config profile (nobody) could not be found"


def test_no_credentials_name_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    text = failing(signed(), AuthenticationError)
    assert "AWS has no credentials for AWS_MSK_IAM; set sasl.aws.profile.name" in text


ROLE = "arn:aws:iam::123456789012:role/producer"
ASSUMED = f"""<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>
<Credentials><AccessKeyId>ASIAROLE</AccessKeyId><SecretAccessKey>{SECRET_KEY}</SecretAccessKey>
<SessionToken>{SESSION}</SessionToken><Expiration>2030-01-01T00:00:00Z</Expiration></Credentials>
</AssumeRoleResult></AssumeRoleResponse>"""
DENIED = """<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type>
<Code>{code}</Code><Message>not for you</Message></Error></ErrorResponse>"""


class Sts:
    """Answers botocore's HTTP requests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, status: int, text: str) -> None:
        import botocore.awsrequest
        import botocore.httpsession

        self.requests: list[Any] = []

        def send(session: object, request: Any) -> Any:
            self.requests.append(request)
            raw = io.BytesIO(text.encode())
            raw.stream = lambda *_, **__: iter([text.encode()])  # type: ignore[attr-defined]
            return botocore.awsrequest.AWSResponse(request.url, status, {}, raw)

        monkeypatch.setattr(botocore.httpsession.URLLib3Session, "send", send)


@pytest.mark.parametrize(
    ("settings", "host", "session_name"),
    [
        ({}, "sts.eu-central-1.amazonaws.com", "aws-msk-iam-auth"),
        (
            {"sasl_aws_sts_region": "us-east-2", "sasl_aws_role_session_name": "mine"},
            "sts.us-east-2.amazonaws.com",
            "mine",
        ),
    ],
)
def test_a_role_is_assumed_in_its_region_for_each_token(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], host: str, session_name: str
) -> None:
    sts = Sts(monkeypatch, 200, ASSUMED)
    source = signed(sasl_aws_role_arn=ROLE, **settings)
    token = source()
    assert token.principal == "ASIAROLE"
    assert "X-Amz-Security-Token=s3cret-FwoGZX" in base64.urlsafe_b64decode(token.value + "==").decode()
    source()
    assert [urlsplit(request.url).hostname for request in sts.requests] == [host] * 2
    assert f"RoleSessionName={session_name}" in sts.requests[0].body


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (403, "AccessDenied", AuthenticationError),
        (429, "Throttling", NetworkError),
        (503, "ServiceUnavailable", NetworkError),
    ],
)
def test_refused_role_differs_from_a_fault(
    monkeypatch: pytest.MonkeyPatch, status: int, code: str, kind: type[AuthenticationError]
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # botocore's retries
    Sts(monkeypatch, status, DENIED.format(code=code))
    text = failing(signed(sasl_aws_role_arn=ROLE), kind, SECRET_KEY)
    assert text.startswith(f"AWS refused {ROLE}: An error occurred ({code})")


def test_no_network_to_aws_is_a_network_error(monkeypatch: pytest.MonkeyPatch) -> None:
    import botocore.httpsession

    def send(session: object, request: Any) -> Any:
        raise botocore.exceptions.EndpointConnectionError(endpoint_url=request.url)

    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr(botocore.httpsession.URLLib3Session, "send", send)
    text = failing(signed(sasl_aws_role_arn=ROLE), NetworkError, SECRET_KEY)
    assert text.startswith("AWS gave no credentials: Could not connect to the endpoint URL")
