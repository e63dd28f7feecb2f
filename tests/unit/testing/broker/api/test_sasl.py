"""Logins and sessions in virtual time, as Kafka's SaslServerAuthenticator and SocketServer have them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.testing.broker.security.listeners import MECHANISMS, Listener
from tests.oracle.scram import ScramClient
from tests.support.broker_core import Answer, Client, VirtualBroker

USERS = {"alice": 'p=a,s"s wörd', "bob": "bob-secret"}
LISTENERS = (
    Listener("SASL_PLAINTEXT", ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")),
    Listener("SASL_SSL", ("PLAIN", "SCRAM-SHA-256"), connections_max_reauth_ms=3000),
    Listener("PLAINTEXT"),
    Listener("SASL_PLAINTEXT", ("OAUTHBEARER",)),
    Listener("SASL_PLAINTEXT", ("OAUTHBEARER",), unsecured_tokens=True),
)
ENDLESS, SHORT, PLAINTEXT, SIGNED, UNSECURED = range(5)
DELAY_MS = 100
API_VERSIONS = messages.ApiVersionsRequest(client_software_name="test", client_software_version="1")
OTHER_USERS_ID = "Authentication failed: Client requested an authorization id that is different from username"
NO_SESSION = "SaslAuthenticate request received after successful authentication"


HOSTILE_BROKER = VirtualBroker(users=USERS, listeners=LISTENERS)


@pytest.fixture
def broker() -> VirtualBroker:
    return VirtualBroker(users=USERS, listeners=LISTENERS)


def plain(user: str = "alice", password: str | None = None, authorization_id: str = "") -> bytes:
    secret = USERS.get(user, "") if password is None else password
    return f"{authorization_id}\0{user}\0{secret}".encode()


def handshake(client: Client, mechanism: str = "PLAIN") -> Any:
    return client.ask(messages.SaslHandshakeRequest(mechanism=mechanism))


def token(data: bytes) -> messages.SaslAuthenticateRequest:
    return messages.SaslAuthenticateRequest(auth_bytes=data)


def log_in(client: Client, data: bytes | None = None, mechanism: str = "PLAIN") -> Any:
    assert handshake(client, mechanism).error_code == 0
    return client.ask(token(plain() if data is None else data))


def refused_late(client: Client, answer: Answer) -> Any:
    """Return the message that comes after the delay of failed logins, with which the connection is closed."""
    client.broker.advance(DELAY_MS - 1)
    assert not answer.is_there
    client.broker.advance(1)
    assert answer.is_closed
    return answer.message


def is_served(client: Client) -> bool:
    answer = client.send(API_VERSIONS)
    return answer.is_there and not answer.is_closed


# The first login


def test_versions_and_handshake_come_first_and_nothing_else(broker: VirtualBroker) -> None:
    client = broker.client()
    assert client.ask(API_VERSIONS).error_code == 0
    assert refused_late(client, client.send(messages.MetadataRequest())) is None
    again = broker.client()
    assert again.ask(API_VERSIONS).error_code == 0
    assert refused_late(again, again.send(API_VERSIONS)) is None


def test_invalid_versions_request_may_be_repeated(broker: VirtualBroker) -> None:
    client = broker.client()
    nameless = messages.ApiVersionsRequest(client_software_name="", client_software_version="1")
    assert client.ask(nameless).error_code == ErrorCode.INVALID_REQUEST
    assert client.ask(API_VERSIONS).error_code == 0
    assert log_in(client).error_code == 0


def test_plain_login_lets_a_client_in_without_end(broker: VirtualBroker) -> None:
    client = broker.client()
    answer = handshake(client)
    assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    accepted = client.ask(token(plain()))
    assert (accepted.error_code, accepted.auth_bytes, accepted.session_lifetime_ms) == (0, b"", 0)
    assert client.connection.principal == "User:alice"
    broker.advance(10**9)
    assert client.ask(messages.MetadataRequest()).controller_id == 0
    other = broker.client()
    assert refused_late(other, other.send(messages.MetadataRequest())) is None, "each for itself"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (plain(password="wrong"), "Authentication failed: Invalid username or password"),
        (plain("eve", "x"), "Authentication failed: Invalid username or password"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0\0x", "Authentication failed: username not specified"),
        (b"alice\0x", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0\xff\0\xfe", "Authentication failed: Invalid username or password"),
        (plain("alice", authorization_id="bob"), OTHER_USERS_ID),
    ],
)
def test_wrong_plain_login_is_refused_late_with_kafkas_text(
    broker: VirtualBroker, data: bytes, text: str
) -> None:
    client = broker.client()
    handshake(client)
    refused = refused_late(client, client.send(token(data)))
    assert (refused.error_code, refused.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, text)


def test_disabled_mechanism_is_refused_late_with_enabled_ones(broker: VirtualBroker) -> None:
    client = broker.client()
    refused = refused_late(client, client.send(messages.SaslHandshakeRequest(mechanism="GSSAPI")))
    assert refused.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert refused.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@pytest.mark.parametrize("request_of", [lambda: API_VERSIONS, lambda: messages.SaslHandshakeRequest()])
def test_request_between_handshake_and_token_is_error_34(broker: VirtualBroker, request_of: Any) -> None:
    client = broker.client()
    handshake(client)
    assert refused_late(client, client.send(request_of())).error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_listener_without_sasl_answers_34_without_mechanisms(broker: VirtualBroker) -> None:
    client = broker.client(listener=PLAINTEXT)
    refused = handshake(client)
    assert (refused.error_code, refused.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    assert client.ask(token(plain())).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert is_served(client)
    assert client.connection.principal == "User:ANONYMOUS"


def test_renewal_without_session_limit_is_error_34(broker: VirtualBroker) -> None:
    client = broker.client()
    log_in(client)
    broker.advance(5000)
    assert handshake(client).error_code == ErrorCode.ILLEGAL_SASL_STATE
    refused = client.ask(token(plain()))
    assert (refused.error_code, refused.error_message) == (ErrorCode.ILLEGAL_SASL_STATE, NO_SESSION)
    assert is_served(client)


# Sessions (KIP-368)


def test_session_ends_with_the_next_request_after_it(broker: VirtualBroker) -> None:
    client = broker.client(listener=SHORT)
    assert log_in(client).session_lifetime_ms == 3000
    broker.advance(3000)
    assert is_served(client)
    broker.advance(1)
    answer = client.send(API_VERSIONS)
    assert (answer.is_closed, answer.message) == (True, None)


@pytest.mark.parametrize("after_ms", [0, 2000, 5000])
def test_session_is_renewed_before_and_after_its_end(broker: VirtualBroker, after_ms: int) -> None:
    client = broker.client(listener=SHORT)
    log_in(client)
    broker.advance(after_ms)
    assert log_in(client).session_lifetime_ms == 3000
    broker.advance(3000)
    assert is_served(client)


def test_early_second_renewal_is_error_34(broker: VirtualBroker) -> None:
    client = broker.client(listener=SHORT)
    log_in(client)
    log_in(client)
    broker.advance(999)
    assert handshake(client).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert is_served(client)
    broker.advance(1)
    assert log_in(client).error_code == 0


def test_early_second_renewal_closes_an_expired_session(broker: VirtualBroker) -> None:
    listeners = (Listener("SASL_PLAINTEXT", ("PLAIN",), connections_max_reauth_ms=500),)
    client = VirtualBroker(users=USERS, listeners=listeners).client()
    log_in(client)
    log_in(client)
    client.broker.advance(501)
    assert client.send(messages.SaslHandshakeRequest(mechanism="PLAIN")).is_closed


def test_request_during_renewal_is_error_34_and_closes(broker: VirtualBroker) -> None:
    client = broker.client(listener=SHORT)
    log_in(client)
    handshake(client)
    kind = messages.MetadataRequest
    refused = refused_late(client, client.send(kind(topics=[kind.MetadataRequestTopic(name="events")])))
    assert [topic.error_code for topic in refused.topics] == [ErrorCode.ILLEGAL_SASL_STATE]


def test_renewal_as_another_principal_is_refused(broker: VirtualBroker) -> None:
    client = broker.client(listener=SHORT)
    log_in(client)
    handshake(client)
    refused = refused_late(client, client.send(token(plain("bob"))))
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        "Cannot change principals during re-authentication from User.alice: User.bob",
    )


def test_renewal_by_another_mechanism_closes_the_connection(broker: VirtualBroker) -> None:
    client = broker.client(listener=SHORT)
    log_in(client)
    assert handshake(client, "SCRAM-SHA-256").error_code == 0
    assert refused_late(client, client.send(token(b"n,,n=alice,r=x"))) is None


def test_option_limits_sessions_of_listeners_without_a_limit() -> None:
    broker = VirtualBroker(users=USERS, listeners=LISTENERS, connections_max_reauth_ms=7000)
    lifetimes = [log_in(broker.client(listener=number)).session_lifetime_ms for number in (ENDLESS, SHORT)]
    assert lifetimes == [7000, 3000]


# SCRAM


@pytest.mark.parametrize("digest", ["sha256", "sha512"])
def test_scram_proves_both_sides(broker: VirtualBroker, digest: str) -> None:
    client, scram = broker.client(), ScramClient(digest, "alice", USERS["alice"])
    first = log_in(client, scram.first(), f"SCRAM-SHA-{digest[3:]}")
    assert (first.error_code, first.session_lifetime_ms) == (0, 0)
    final = client.ask(token(scram.final(first.auth_bytes)))
    assert (final.error_code, final.auth_bytes) == (0, scram.expected)
    assert scram.iterations == 4096
    assert client.connection.principal == "User:alice"
    assert is_served(client)


def scram_refusal(client: Client, *tokens: Any) -> tuple[int, str]:
    """Return the error of the last token; a function gets the answer to the one before."""
    handshake(client, "SCRAM-SHA-256")
    *accepted, last = tokens
    data = b""
    for each in accepted:
        data = client.ask(token(each)).auth_bytes
    refused = refused_late(client, client.send(token(last(data) if callable(last) else last)))
    return refused.error_code, refused.error_message


@pytest.mark.parametrize(
    "tokens",
    [
        [b"n,,n=eve,r=clientnonce"],
        [b"n,,n=alice"],
        [b"y,,n=alice,r=clientnonce"],
        [b"n,,n=a=lice,r=clientnonce"],
        [b"\xff\xfe"],
        [b"n,,n=alice,r=clientnonce", b"nonsense"],
        [b"n,,n=alice,r=clientnonce", b"c=biws,r=clientnonce,p=AAAA"],
        [b"n,,n=alice,r=clientnonce", lambda first: ScramClient("sha256", "alice", "wrong").final(first)],
        [
            b"n,,n=alice,r=clientnonce",
            lambda first: ScramClient("sha256", "alice", USERS["alice"]).final(first, binding="eSws"),
        ],
        [
            b"n,,n=alice,r=clientnonce",
            lambda first: ScramClient("sha256", "alice", USERS["alice"]).final(first, nonce="clientnonceX"),
        ],
    ],
)
def test_wrong_scram_login_says_nothing_of_the_reason(broker: VirtualBroker, tokens: list[Any]) -> None:
    assert scram_refusal(broker.client(), *tokens) == (
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        "Authentication failed during authentication due to invalid credentials with SASL mechanism "
        "SCRAM-SHA-256",
    )


def test_wrong_scram_renewal_says_so(broker: VirtualBroker) -> None:
    client, scram = broker.client(listener=SHORT), ScramClient("sha256", "bob", USERS["bob"])
    first = log_in(client, scram.first(), "SCRAM-SHA-256")
    assert client.ask(token(scram.final(first.auth_bytes))).session_lifetime_ms == 3000
    _, text = scram_refusal(client, b"n,,n=eve,r=clientnonce")
    assert text.startswith("Authentication failed during re-authentication due to")


def test_scram_authorization_id_must_be_the_user(broker: VirtualBroker) -> None:
    refused = scram_refusal(broker.client(), b"n,a=bob,n=alice,r=clientnonce")
    assert refused == (ErrorCode.SASL_AUTHENTICATION_FAILED, OTHER_USERS_ID)


# Delegation tokens


def created(broker: VirtualBroker, lifetime_ms: int = -1, **fields: Any) -> tuple[Client, Any]:
    """A client that logged in as alice, and the answer to its wish for a token."""
    client = broker.client()
    log_in(client)
    kind = messages.CreateDelegationTokenRequest
    return client, client.ask(kind(max_lifetime_ms=lifetime_ms, **fields))


def log_in_by_token(client: Client, token_id: str, secret: bytes) -> Any:
    password = base64.b64encode(secret).decode()
    scram = ScramClient("sha256", token_id, password, extensions=",tokenauth=true")
    handshake(client, "SCRAM-SHA-256")
    first = client.send(token(scram.first()))
    client.broker.advance(DELAY_MS)
    if first.message.error_code:
        return first.message
    return client.ask(token(scram.final(bytes(first.message.auth_bytes))))


def test_token_stands_for_its_owner_until_it_expires(broker: VirtualBroker) -> None:
    _, issued = created(broker, 60_000)
    assert (issued.error_code, issued.principal_name, issued.token_requester_principal_name) == (
        0,
        "alice",
        "alice",
    )
    assert issued.max_timestamp_ms == issued.expiry_timestamp_ms == broker.now_ms + 60_000
    client = broker.client()
    accepted = log_in_by_token(client, issued.token_id, issued.hmac)
    assert (accepted.error_code, accepted.session_lifetime_ms) == (0, 60_000 - DELAY_MS)
    assert client.connection.principal == "User:alice"
    refused = client.ask(messages.CreateDelegationTokenRequest())
    assert refused.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    broker.advance(60_000)
    assert client.send(API_VERSIONS).is_closed
    expired = log_in_by_token(broker.client(), issued.token_id, issued.hmac)
    assert expired.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_token_is_no_password_without_its_extension(broker: VirtualBroker) -> None:
    _, issued = created(broker)
    client = broker.client()
    handshake(client, "SCRAM-SHA-256")
    scram = ScramClient("sha256", issued.token_id, base64.b64encode(issued.hmac).decode())
    refused = refused_late(client, client.send(token(scram.first())))
    assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_owner_and_renewers_renew_describe_and_expire_tokens(broker: VirtualBroker) -> None:
    renewer = messages.CreateDelegationTokenRequest.CreatableRenewers(
        principal_type="User", principal_name="bob"
    )
    alice, issued = created(broker, renewers=[renewer])
    day_ms = 86_400_000
    assert issued.expiry_timestamp_ms - issued.issue_timestamp_ms == day_ms
    assert issued.max_timestamp_ms - issued.issue_timestamp_ms == 7 * day_ms
    bob = broker.client()
    log_in(bob, plain("bob"))
    broker.advance(1000)
    renewed = bob.ask(messages.RenewDelegationTokenRequest(hmac=issued.hmac, renew_period_ms=-1))
    assert renewed.expiry_timestamp_ms == issued.expiry_timestamp_ms + 1000
    (seen,) = bob.ask(messages.DescribeDelegationTokenRequest(owners=None)).tokens
    assert (seen.token_id, seen.principal_name, seen.expiry_timestamp) == (
        issued.token_id,
        "alice",
        renewed.expiry_timestamp_ms,
    )
    unknown = bob.ask(messages.RenewDelegationTokenRequest(hmac=b"x"))
    assert unknown.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    gone = alice.ask(messages.ExpireDelegationTokenRequest(hmac=issued.hmac, expiry_time_period_ms=-1))
    assert (gone.error_code, gone.expiry_timestamp_ms) == (0, broker.now_ms)
    assert alice.ask(messages.DescribeDelegationTokenRequest(owners=None)).tokens == []


def test_tokens_of_others_are_their_own(broker: VirtualBroker) -> None:
    _, issued = created(broker)
    bob = broker.client()
    log_in(bob, plain("bob"))
    for kind in (messages.RenewDelegationTokenRequest, messages.ExpireDelegationTokenRequest):
        refused = bob.ask(kind(hmac=issued.hmac))
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    group = messages.CreateDelegationTokenRequest.CreatableRenewers(
        principal_type="Group", principal_name="x"
    )
    assert created(broker, renewers=[group])[1].error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    anonymous = broker.client(listener=PLAINTEXT)
    for request in (messages.CreateDelegationTokenRequest(), messages.DescribeDelegationTokenRequest()):
        refused = anonymous.ask(request)
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


# OAUTHBEARER


def bearer(value: str, **pairs: str) -> bytes:
    fields = [f"auth=Bearer {value}", *(f"{key}={text}" for key, text in pairs.items())]
    return "\x01".join(["n,,", *fields, "", ""]).encode()


def issued(
    broker: VirtualBroker, lifetime_ms: int = 60_000, *, unsecured: bool = False, **claims: Any
) -> str:
    tokens = broker.state.tokens
    return tokens.token("alice", lifetime_ms, broker.now_ms, unsecured=unsecured, claims=claims)


@pytest.mark.parametrize("listener", [SIGNED, UNSECURED])
def test_token_lets_a_client_in_until_it_expires(broker: VirtualBroker, listener: int) -> None:
    client = broker.client(listener=listener)
    value = issued(broker, unsecured=listener == UNSECURED)
    accepted = log_in(client, bearer(value, logicalCluster="lkc-1"), "OAUTHBEARER")
    assert (accepted.error_code, accepted.auth_bytes, accepted.session_lifetime_ms) == (0, b"", 60_000)
    assert client.connection.principal == "User:alice"
    broker.advance(60_001)
    assert client.send(API_VERSIONS).is_closed


WRONG_TOKENS: dict[str, Callable[[VirtualBroker], str]] = {
    "expired": lambda broker: issued(broker, -31_000),
    "another issuer": lambda broker: issued(broker, iss="https://other"),
    "another audience": lambda broker: issued(broker, aud=["other"]),
    "no subject": lambda broker: issued(broker, sub=None),
    "no expiry": lambda broker: issued(broker, exp=None),
    "no time of issue": lambda broker: issued(broker, iat=None),
    "not valid yet": lambda broker: issued(broker, nbf=broker.now_ms // 1000 + 60),
    "text as expiry": lambda broker: issued(broker, exp="tomorrow"),
    "not signed": lambda broker: issued(broker, unsecured=True),
    "another signature": lambda broker: issued(broker)[:-8] + "AAAAAAAA",
    "other claims": lambda broker: ".".join(
        [issued(broker).split(".")[0], issued(broker, sub="bob").split(".")[1], issued(broker).split(".")[2]]
    ),
    "opaque": lambda broker: "opaque",
    "not JSON": lambda broker: "AAAA.AAAA.AAAA",
    "a list": lambda broker: "W10.W10.AAAA",
}


@pytest.mark.parametrize("name", WRONG_TOKENS)
def test_wrong_token_gets_a_json_challenge_and_then_58(broker: VirtualBroker, name: str) -> None:
    client = broker.client(listener=SIGNED)
    challenged = log_in(client, bearer(WRONG_TOKENS[name](broker)), "OAUTHBEARER")
    assert (challenged.error_code, challenged.auth_bytes) == (0, b'{"status":"invalid_token"}')
    refused = refused_late(client, client.send(token(b"\x01")))
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        '{"status":"invalid_token"}',
    )


def test_token_within_clock_skew_gives_an_expired_session(broker: VirtualBroker) -> None:
    client = broker.client(listener=SIGNED)
    accepted = log_in(client, bearer(issued(broker, -29_000)), "OAUTHBEARER")
    assert (accepted.error_code, accepted.auth_bytes, accepted.session_lifetime_ms) == (0, b"", 0)
    broker.advance(1)
    assert client.send(API_VERSIONS).is_closed


@pytest.mark.parametrize("listener", [SIGNED, UNSECURED])
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01key=value\x01\x01",
        b"n,,auth=Bearer abc",
        b"n,,\x01auth=Bearer a\x01k1=v\x01\x01",
    ],
)
def test_malformed_client_response_is_refused(broker: VirtualBroker, listener: int, data: bytes) -> None:
    client = broker.client(listener=listener)
    handshake(client, "OAUTHBEARER")
    refused = refused_late(client, client.send(token(data)))
    assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "invalid credentials with SASL mechanism OAUTHBEARER" in refused.error_message


@pytest.mark.parametrize(
    "claims", [{"exp": 1}, {"exp": None}, {"sub": ""}, {"sub": 7}, {"iat": 10**10}], ids=str
)
def test_unsecured_token_must_be_current_and_name_a_subject(
    broker: VirtualBroker, claims: dict[str, Any]
) -> None:
    client = broker.client(listener=UNSECURED)
    answer = log_in(client, bearer(issued(broker, unsecured=True, **claims)), "OAUTHBEARER")
    assert answer.auth_bytes == b'{"status":"invalid_token"}'
    assert issued(broker).count(".") == 2
    signed = log_in(broker.client(listener=UNSECURED), bearer(issued(broker)), "OAUTHBEARER")
    assert signed.auth_bytes == b'{"status":"invalid_token"}'


# Hostile tokens


def unsigned(claims: Any) -> str:
    """A token without a signature, of claims or their JSON."""
    text = claims if isinstance(claims, str) else json.dumps(claims)
    return f"eyJhbGciOiJub25lIn0.{base64.urlsafe_b64encode(text.encode()).decode().rstrip('=')}."


fields = st.sampled_from(
    [
        *("n,,", "n,a=alice,", "n=alice", "r=clientnonce", ",", "=", "=2C", "c=biws", "p=AAAA"),
        *("auth=Bearer ", "\x01", "\0", "W10.W10.", "eyJhbGciOiJub25lIn0.", "bnVsbA.", "bnVsbA", "."),
        *("\ud800", "alice", "W" * 5000),
    ]
)
hostile = st.one_of(
    st.binary(max_size=60),
    st.lists(fields, max_size=8).map(lambda parts: "".join(parts).encode(errors="surrogatepass")),
    st.recursive(st.none() | st.floats() | st.integers(), lambda inner: st.lists(inner, max_size=2)).map(
        lambda value: bearer(unsigned({"sub": "alice", "exp": value, "iat": value}))
    ),
    st.just(bearer(unsigned("[" * 100_000))),
)


@given(
    tokens=st.lists(hostile, min_size=1, max_size=3),
    mechanism=st.sampled_from(MECHANISMS),
    signed=st.booleans(),
)
def test_hostile_tokens_are_answered_or_close_the_connection(
    tokens: list[bytes], mechanism: str, signed: bool
) -> None:
    broker = HOSTILE_BROKER
    listener = (SIGNED if signed else UNSECURED) if mechanism == "OAUTHBEARER" else SHORT
    client = broker.client(listener=listener if mechanism != "SCRAM-SHA-512" else ENDLESS)
    handshake(client, mechanism)
    for data in tokens:
        answer = client.send(token(data))
        broker.advance(DELAY_MS)
        assert answer.is_there
        assert answer.message is not None, "it is answered, also if the connection is closed then"
        if answer.is_closed or client.connection.session.user is not None:
            break


# Faults


def test_failed_authentication_hits_right_passwords_and_counts(broker: VirtualBroker) -> None:
    broker.core.faults.fail_next("SaslAuthenticate", "SASL_AUTHENTICATION_FAILED", times=2)
    for _ in range(2):
        client = broker.client()
        handshake(client)
        refused = refused_late(client, client.send(token(plain())))
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "due to invalid credentials with SASL mechanism PLAIN" in refused.error_message
    assert log_in(broker.client()).error_code == 0


def test_expired_session_closes_with_its_next_request(broker: VirtualBroker) -> None:
    before = [broker.client(listener=number) for number in (ENDLESS, SHORT, PLAINTEXT)]
    for client in before[:2]:
        log_in(client)
    broker.state.session_generation += 1
    assert [client.send(API_VERSIONS).is_closed for client in before] == [True, True, False]
    after = broker.client()
    log_in(after)
    assert is_served(after)


def test_no_login_is_remembered_with_its_secret(broker: VirtualBroker) -> None:
    log_in(broker.client())
    kind = messages.AlterUserScramCredentialsRequest
    upsertion = kind.ScramCredentialUpsertion(
        name="x", mechanism=1, iterations=4096, salted_password=b"salted"
    )
    broker.client(listener=PLAINTEXT).ask(kind(upsertions=[upsertion]))
    shown = repr(broker.core.requests)
    assert "p=a,s" not in shown
    assert "b'salted'" not in shown
    assert "auth_bytes" in shown
