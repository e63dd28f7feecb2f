"""AWS_MSK_IAM: a signed URL as the token of OAUTHBEARER, for Amazon MSK, provisioned and serverless.

It is the token of AWS's own signers for Python, Go and JavaScript. Credentials and the signature, Signature
Version 4 of a query, come from botocore.
"""

import os
import re
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any, Protocol

from kbatch.config import ClientConfig
from kbatch.distribution import pip_install
from kbatch.errors import AuthenticationError, ConfigError, KafkaError, NetworkError
from kbatch.errors.words import shown
from kbatch.sasl.exchange import NEVER, Exchange
from kbatch.sasl.oauthbearer import OAuthBearerExchange
from kbatch.sasl.token_login import LoginPolicy, TokenLogin, policy_of
from kbatch.sasl.tokens import Token
from kbatch.version import VERSION

SERVICE = "kafka-cluster"
LIFE_SECONDS = 900
USER_AGENT = f"kbatch/{VERSION}"
# Names of brokers, such as b-1.name.abc123.c2.kafka.eu-central-1.amazonaws.com.
BROKER = re.compile(r".*\.kafka(?:-serverless)?\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?")
REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
# aws-msk-iam-auth's, which policies may name.
SESSION_NAME = "aws-msk-iam-auth"
STS_TIMEOUT_SECONDS = 10


class Keys(Protocol):
    """The credentials of AWS; token is that of a session."""

    access_key: str
    secret_key: str
    token: str | None


def signed_token(region: str, keys: Keys, user_agent: str = USER_AGENT) -> str:
    """Return the token: the base64 of a URL that is valid for 15 minutes from now.

    Parameters
    ----------
    region : str
        Of the cluster.
    keys : Keys
    user_agent : str
        The name of the signer, which is not signed.
    """
    from botocore.auth import SigV4QueryAuth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import ReadOnlyCredentials

    url = f"https://kafka.{region}.amazonaws.com/"
    request = AWSRequest("GET", url, params={"Action": "kafka-cluster:Connect"})
    no_empty_token = ReadOnlyCredentials(keys.access_key, keys.secret_key, keys.token or None)
    SigV4QueryAuth(no_empty_token, SERVICE, region, expires=LIFE_SECONDS).add_auth(request)
    request.params = {"User-Agent": user_agent}
    return urlsafe_b64encode(request.prepare().url.encode()).rstrip(b"=").decode()


def region_of(host: str) -> str:
    """Return the region of a broker, by its name or else by the environment.

    Raises
    ------
    AuthenticationError
        If neither tells.
    """
    match = BROKER.fullmatch(host.rstrip(".").lower())
    if match is not None:
        return match["region"]
    for name in REGION_VARIABLES:
        if region := os.environ.get(name):
            return region
    raise AuthenticationError(
        f"AWS_MSK_IAM needs the cluster's region, which {host!r} does not name; set the environment variable "
        "AWS_REGION"
    )


class MskIam:
    """The mechanism AWS_MSK_IAM, which brokers know as OAUTHBEARER.

    Raises
    ------
    ConfigError
        If botocore is not installed.
    """

    name = "OAUTHBEARER"

    def __init__(self, config: ClientConfig) -> None:
        self._credentials = AwsCredentials(config)
        self._policy: LoginPolicy = policy_of(config)
        self._logins: dict[str, TokenLogin] = {}  # by region: all brokers of a cluster share one

    def exchange(self, host: str) -> Exchange:
        region = region_of(host)
        login = self._logins.get(region)
        if login is None:
            login = TokenLogin(
                SignedTokens(region, self._credentials), "AWS", self._policy, refreshes_apart=True
            )
            self._logins[region] = login
        return OAuthBearerExchange(login, {})

    def refresh_deadline_ns(self) -> int:
        return min((login.refresh_deadline_ns() for login in self._logins.values()), default=NEVER)

    def refresh(self) -> None:
        due = self.refresh_deadline_ns()
        for login in self._logins.values():
            if login.refresh_deadline_ns() <= due:
                login.refresh()

    def close(self) -> None: ...


class SignedTokens:
    """Signs a new token at each call."""

    def __init__(
        self, region: str, credentials: "AwsCredentials", now: Callable[[], float] = time.time
    ) -> None:
        self._region = region
        self._credentials = credentials
        self._now = now

    def __call__(self) -> Token:
        now = int(self._now())
        found = self._credentials.current(self._region)
        if isinstance(found, KafkaError):
            raise found  # from here, without the frames that have credentials
        value = signed_token(self._region, found)
        return Token(value, now + LIFE_SECONDS, principal=found.access_key)


class AwsCredentials:
    """AWS credentials by botocore's chain, of a profile, or of a role.

    Parameters
    ----------
    config : ClientConfig
        Its keys sasl.aws.*: role.arn, role.session.name, sts.region and profile.name.
    """

    def __init__(self, config: ClientConfig) -> None:
        try:
            import botocore.session
        except ImportError:
            raise ConfigError(
                f"sasl.mechanism=AWS_MSK_IAM needs the package botocore; {pip_install('aws')}"
            ) from None
        self._profile = config.sasl_aws_profile_name
        self._role = config.sasl_aws_role_arn
        self._session_name = config.sasl_aws_role_session_name or SESSION_NAME
        self._sts_region = config.sasl_aws_sts_region
        self._session: Any = botocore.session.Session(profile=self._profile)

    def current(self, region: str) -> Keys | KafkaError:
        """Return credentials that are valid now, or the error, which is not raised: frames show locals."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            found = self._session.get_credentials()
            if found is None:
                return AuthenticationError(
                    "AWS has no credentials for AWS_MSK_IAM; set sasl.aws.profile.name, the variables "
                    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run where a role is attached"
                )
            if self._role is not None:
                return self._assumed(self._sts_region or region)
            keys: Keys = found.get_frozen_credentials()
            return keys
        except ClientError as error:
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            is_refusal = 400 <= status < 500 and status != 429
            text = f"AWS refused {'credentials' if self._role is None else self._role}: {shown(str(error))}"
            return AuthenticationError(text) if is_refusal else NetworkError(text)
        except BotoCoreError as error:
            return self._failure(error)

    def _failure(self, error: Exception) -> KafkaError:
        from botocore import exceptions

        text = f"AWS gave no credentials: {shown(str(error))}"
        lasting = (
            exceptions.ProfileNotFound,
            exceptions.PartialCredentialsError,
            exceptions.ConfigParseError,
        )
        return AuthenticationError(text) if isinstance(error, lasting) else NetworkError(text)

    def _assumed(self, region: str) -> Keys:
        from botocore.config import Config
        from botocore.credentials import ReadOnlyCredentials

        limits = Config(connect_timeout=STS_TIMEOUT_SECONDS, read_timeout=STS_TIMEOUT_SECONDS)
        client = self._session.create_client("sts", region_name=region, config=limits)
        answer = client.assume_role(RoleArn=self._role, RoleSessionName=self._session_name)["Credentials"]
        keys: Keys = ReadOnlyCredentials(
            answer["AccessKeyId"], answer["SecretAccessKey"], answer["SessionToken"]
        )
        return keys
