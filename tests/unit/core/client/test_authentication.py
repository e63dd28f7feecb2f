"""The SASL login of a connection, by brokers that follow a script."""

from __future__ import annotations

import logging
from random import Random
from typing import Any

import pytest

from kbatch.core.client.actions import Authenticate, EndAuthentication
from kbatch.core.client.authentication import MAX_ROUNDS, UNLIMITED, Login, credentials_in, session_after
from kbatch.core.client.cluster import Node
from kbatch.core.client.connection import MAX_SETUP_FRAME_BYTES
from kbatch.core.client.node_state import TRANSITIONS, ConnectionState
from kbatch.errors import (
    AuthenticationError,
    ErrorCode,
    IllegalSaslStateError,
    KafkaError,
    NetworkError,
    SaslAuthenticationError,
    UnsupportedSaslMechanismError,
)
from kbatch.metrics import MetricsRegistry
from kbatch.protocol import codec, messages
from tests.support.core_shell import MS, NEVER, PLAIN, SECOND, VERSIONS, Peer, Shell, versions_answer

HANDSHAKE, AUTHENTICATE, METADATA = (
    messages.SaslHandshakeRequest,
    messages.SaslAuthenticateRequest,
    messages.MetadataRequest,
)
ACCEPTED = messages.SaslHandshakeResponse(mechanisms=["PLAIN"])


def passed(lifetime_ms: int = 0, token: bytes = b"") -> Any:
    return messages.SaslAuthenticateResponse(auth_bytes=token, session_lifetime_ms=lifetime_ms)


def new_shell(**settings: Any) -> Shell:
    return Shell(**{**PLAIN, **settings})


def kinds(peer: Peer) -> list[Any]:
    return [type(request.message) for request in peer.requests()]


def connect(shell: Shell, node_id: int = -1, versions: Any = None) -> Peer:
    """Return a connection whose versions are known."""
    peer = shell.connect(node_id)
    shell.answer(peer, versions_answer(versions))
    shell.write(peer)
    return peer


def accept(shell: Shell, peer: Peer) -> None:
    """Accept the mechanism, as the broker."""
    shell.answer(peer, ACCEPTED)
    shell.write(peer)


def asked(shell: Shell, token: bytes | KafkaError = b"token") -> Peer:
    """Return a connection whose broker has accepted the mechanism and is asked with the first token."""
    peer = connect(shell)
    accept(shell, peer)
    shell.token(peer, token)
    return peer


def finish(shell: Shell, peer: Peer, lifetime_ms: int = 0) -> None:
    """Accept the token, as the broker, and its answer, as the mechanism."""
    shell.answer(peer, passed(lifetime_ms))
    assert shell.token(peer, None) == b""


def log_in(shell: Shell, node_id: int = -1, lifetime_ms: int = 0) -> Peer:
    peer = connect(shell, node_id)
    accept(shell, peer)
    shell.token(peer, b"first")
    finish(shell, peer, lifetime_ms)
    assert shell.connections.is_ready(node_id, shell.now_ns)
    return peer


def use_until_due(shell: Shell, peer: Peer, lifetime_ms: int) -> None:
    """Send requests until one begins the next login, near the end of the session."""
    while not shell.tokens_due:
        shell.advance(lifetime_ms * MS // 200)
        shell.ask()
        shell.answer(peer, messages.MetadataResponse())
    shell.taken()
    assert 0.85 <= shell.now_ns / (lifetime_ms * MS) < 0.96


# The first login


def test_login_sends_handshake_then_tokens_until_complete() -> None:
    shell = new_shell()
    peer = connect(shell)
    assert shell.tokens_due[peer.connection_id] == Authenticate(peer.connection_id, "a", None)
    assert kinds(peer)[1:] == [HANDSHAKE]
    assert peer.requests()[1].message.mechanism == "PLAIN"
    assert peer.requests()[1].version == 1
    accept(shell, peer)
    assert shell.token(peer, b"one") is None
    assert kinds(peer)[1:] == [HANDSHAKE, AUTHENTICATE]
    shell.answer(peer, passed(token=b"challenge"))
    assert not shell.connections.is_ready(-1, 0)
    assert shell.token(peer, b"two") == b"challenge"
    assert [bytes(each.message.auth_bytes) for each in peer.requests()[2:]] == [b"one", b"two"]
    assert peer.requests()[2].version == 2
    shell.answer(peer, passed(token=b"proof"))
    assert not shell.connections.is_ready(-1, 0)  # until the proof is verified
    assert shell.token(peer, None) == b"proof"
    assert shell.connections.is_ready(-1, 0)
    assert shell.ended_logins == []


def test_token_that_comes_before_the_handshake_is_answered_waits() -> None:
    shell = new_shell()
    peer = connect(shell)
    shell.token(peer, b"early")
    assert kinds(peer)[1:] == [HANDSHAKE]
    accept(shell, peer)
    assert kinds(peer)[1:] == [HANDSHAKE, AUTHENTICATE]


def test_versions_are_the_lower_of_both_sides() -> None:
    shell = new_shell()
    peer = connect(shell, versions={**VERSIONS, 17: (0, 1), 36: (0, 1)})
    accept(shell, peer)
    shell.token(peer, b"token")
    assert [request.version for request in peer.requests()[1:]] == [1, 1]


@pytest.mark.parametrize("missing", [{36: None}, {17: (0, 0)}, {17: None}])
def test_broker_without_authenticate_is_refused(missing: dict[int, Any]) -> None:
    shell = new_shell()
    versions = {key: value for key, value in (VERSIONS | missing).items() if value}
    peer = connect(shell, versions=versions)
    assert peer.is_closed
    assert kinds(peer) == [messages.ApiVersionsRequest]
    assert shell.tokens_due == {}
    with pytest.raises(AuthenticationError, match=r"node -1 \(a:9092\): .*SaslAuthenticate.*Kafka 1.0"):
        raise shell.connections.authentication_error or AssertionError


def test_msk_iam_speaks_oauthbearer() -> None:
    shell = new_shell(sasl_mechanism="AWS_MSK_IAM", sasl_username=None, sasl_password=None)
    peer = connect(shell)
    assert peer.requests()[1].message.mechanism == "OAUTHBEARER"


# Refusals


def refused_by(shell: Shell, peer: Peer, answer: Any) -> KafkaError:
    """Refuse the login by `answer`, and return the client's error."""
    shell.answer(peer, answer)
    assert peer.is_closed
    assert shell.connections.delay_ns(-1, shell.now_ns) > 0
    error = shell.connections.authentication_error
    assert error is not None
    assert not (error.retriable or error.fatal)
    return error


def test_mechanism_that_is_not_enabled_names_those_that_are() -> None:
    shell = new_shell()
    peer = connect(shell)
    answer = messages.SaslHandshakeResponse(error_code=33, mechanisms=["SCRAM-SHA-256", "GSSAPI"])
    error = refused_by(shell, peer, answer)
    assert isinstance(error, UnsupportedSaslMechanismError)
    assert "sasl.mechanism=PLAIN; it has enabled: SCRAM-SHA-256, GSSAPI" in str(error)
    assert shell.ended_logins == [peer.connection_id]


def test_listener_without_sasl_is_named() -> None:
    shell = new_shell()
    peer = connect(shell)
    error = refused_by(shell, peer, messages.SaslHandshakeResponse(error_code=34))
    assert isinstance(error, IllegalSaslStateError)
    assert "security.protocol=PLAINTEXT or SSL" in str(error)


@pytest.mark.parametrize("code", [58, 34, 42])
def test_refused_token_shows_the_text_of_the_broker(code: int) -> None:
    shell = new_shell()
    peer = asked(shell)
    answer = messages.SaslAuthenticateResponse(error_code=code, error_message="no such user")
    error = refused_by(shell, peer, answer)
    assert isinstance(error, IllegalSaslStateError if code == 34 else SaslAuthenticationError)
    assert str(error) == "node -1 (a:9092): the broker refused the login with PLAIN: no such user"


def test_refusal_that_may_pass_is_a_disconnect() -> None:
    """A broker that starts up has no credentials yet."""
    shell = new_shell()
    peer = asked(shell)
    shell.answer(peer, messages.SaslAuthenticateResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    assert peer.is_closed
    assert shell.connections.authentication_error is None


def test_error_of_the_mechanism_ends_the_connection() -> None:
    shell = new_shell()
    peer = asked(shell)
    shell.answer(peer, passed(token=b"forged"))
    shell.token(peer, AuthenticationError("the broker has not proved that it knows the password"))
    assert peer.is_closed
    error = shell.connections.authentication_error
    assert str(error) == "node -1 (a:9092): the broker has not proved that it knows the password"


def test_unreachable_provider_is_a_disconnect() -> None:
    shell = new_shell()
    peer = connect(shell)
    shell.token(peer, NetworkError("the token endpoint does not answer"))
    assert peer.is_closed
    assert shell.connections.authentication_error is None
    assert "token endpoint" in str(shell.connections.last_failure)


def exchange(shell: Shell, tokens: int) -> Peer:
    """Return a connection that has sent so many tokens, each of which the broker answered by a challenge."""
    peer = connect(shell)
    accept(shell, peer)
    for number in range(tokens):
        shell.token(peer, b"token %d" % number)
        shell.answer(peer, passed(token=b"challenge %d" % number))
    assert kinds(peer)[2:] == [AUTHENTICATE] * tokens
    return peer


def test_endless_challenges_end_the_login() -> None:
    shell = new_shell()
    peer = exchange(shell, MAX_ROUNDS)
    assert shell.token(peer, b"one more") == b"challenge 63"
    assert peer.is_closed
    with pytest.raises(SaslAuthenticationError, match=r"more than 64 tokens of sasl\.mechanism=PLAIN"):
        raise shell.connections.authentication_error or AssertionError


def test_login_may_need_all_its_tokens() -> None:
    shell = new_shell()
    peer = exchange(shell, MAX_ROUNDS)
    shell.token(peer, None)
    assert shell.connections.is_ready(-1, 0)


def test_tokens_are_counted_anew_in_a_renewal() -> None:
    shell = new_shell()
    peer = exchange(shell, MAX_ROUNDS - 1)
    shell.token(peer, b"last")
    finish(shell, peer, 10_000)
    use_until_due(shell, peer, 10_000)
    shell.token(peer, b"first")
    accept(shell, peer)
    assert not peer.is_closed
    assert kinds(peer)[-2:] == [HANDSHAKE, AUTHENTICATE]


def test_refusal_of_one_broker_leaves_the_others_usable() -> None:
    shell = new_shell(bootstrap_servers="a:9092,b:9092")
    log_in(shell, -2)
    peer = connect(shell, -1)
    accept(shell, peer)
    shell.token(peer, b"token")
    shell.answer(peer, messages.SaslAuthenticateResponse(error_code=58, error_message="no"))
    assert peer.is_closed
    assert shell.connections.authentication_error is None
    assert "no" in str(shell.connections.last_failure)


def test_failure_is_logged_once_a_text(caplog: pytest.LogCaptureFixture) -> None:
    shell = new_shell()
    for text in ("one", "one", "two", "two", "one"):
        peer = asked(shell)
        shell.answer(peer, messages.SaslAuthenticateResponse(error_code=58, error_message=text))
        shell.advance(2 * SECOND)
    errors = [each.message.rpartition(" ")[2] for each in caplog.records if each.levelno >= logging.WARNING]
    assert errors == ["one", "two"]
    assert all(each.levelno == logging.ERROR for each in caplog.records if each.levelno >= logging.WARNING)


def test_password_that_the_broker_repeats_is_not_quoted(caplog: pytest.LogCaptureFixture) -> None:
    shell = new_shell()
    peer = asked(shell, b"\0alice\0correct-horse")
    answer = messages.SaslAuthenticateResponse(error_code=58, error_message="bad: \0alice\0correct-horse\n")
    shell.answer(peer, answer)
    assert "correct" not in caplog.text + str(shell.connections.last_failure)
    assert "left out" in str(shell.connections.authentication_error)


@pytest.mark.parametrize("token", [b"n,,\1auth=Bearer abc.def.ghi\1\1", b"\0alice\0abc.def.ghi"])
def test_credentials_are_found_in_tokens(token: bytes) -> None:
    assert credentials_in(token) == ["abc.def.ghi"]


@pytest.mark.parametrize("token", [b"n,,n=alice,r=abc", b"", b"\x60\x82\0"])
def test_other_tokens_have_no_credentials(token: bytes) -> None:
    assert credentials_in(token) == []


def test_words_of_brokers_are_bounded_and_forge_no_line(caplog: pytest.LogCaptureFixture) -> None:
    shell = new_shell()
    peer = asked(shell)
    text = "no\r\nCRITICAL forged" + "x" * 30_000
    shell.answer(peer, messages.SaslAuthenticateResponse(error_code=58, error_message=text))
    (record,) = (each for each in caplog.records if each.levelno == logging.ERROR)
    assert len(record.getMessage()) < 1000
    assert "no  CRITICAL forged" in record.getMessage()


def test_missing_token_is_a_warning_once(caplog: pytest.LogCaptureFixture) -> None:
    shell = new_shell()
    for _ in range(3):
        asked(shell, NetworkError("the token endpoint does not answer"))
        shell.advance(2 * SECOND)
    (warning,) = (each for each in caplog.records if each.levelno >= logging.WARNING)
    assert warning.levelno == logging.WARNING
    assert "the token endpoint does not answer" in warning.message


def test_failure_after_a_success_is_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    shell = new_shell()
    for _ in range(2):
        peer = asked(shell)
        shell.answer(peer, messages.SaslAuthenticateResponse(error_code=58, error_message="no"))
        shell.advance(2 * SECOND)
        peer = log_in(shell)
        shell.advance(2 * SECOND)  # longer than the wait before it
        shell.ask()
        shell.answer(peer, messages.MetadataResponse())
        shell.close(peer)
        shell.advance(2 * SECOND)
    assert len([each for each in caplog.records if each.levelno >= logging.ERROR]) == 2


# Time, and bytes, before it is ready


@pytest.mark.parametrize("is_verifying", [False, True])
def test_token_that_does_not_come_ends_the_connection(is_verifying: bool) -> None:
    shell = new_shell(socket_connection_setup_timeout_ms=1000, socket_connection_setup_timeout_max_ms=1000)
    peer = connect(shell)
    accept(shell, peer)
    if is_verifying:
        shell.token(peer, b"token")
        shell.advance(900 * MS)
        shell.answer(peer, passed())
    shell.advance(SECOND - 1)
    assert not peer.is_closed
    shell.advance(1)
    assert peer.is_closed
    assert shell.ended_logins == [peer.connection_id]
    assert "no token for sasl.mechanism=PLAIN" in str(shell.connections.last_failure)
    shell.connections.handle_token(peer.connection_id, b"late", shell.now_ns)
    assert shell.poll() == []


def test_broker_that_does_not_answer_a_token_is_given_up() -> None:
    shell = new_shell(request_timeout_ms=1000, linger_ms=0)
    peer = asked(shell)
    shell.advance(SECOND)
    assert peer.is_closed
    assert shell.connections.authentication_error is None


def test_waiting_for_a_token_is_not_idleness() -> None:
    shell = new_shell(connections_max_idle_ms=1000)
    peer = connect(shell)
    accept(shell, peer)
    shell.advance(5 * SECOND)
    assert not peer.is_closed


def test_disconnect_during_login_ends_the_exchange() -> None:
    shell = new_shell()
    peer = connect(shell)
    accept(shell, peer)
    shell.close(peer, NetworkError("reset"))
    assert shell.ended_logins == [peer.connection_id]
    assert "reset during the login with sasl.mechanism=PLAIN" in str(shell.connections.last_failure)
    assert shell.connections.authentication_error is None


def test_token_request_that_was_not_polled_is_withdrawn() -> None:
    shell = new_shell()
    peer = shell.connect(-1)
    (request,) = peer.requests()
    frame = versions_answer_bytes(request)
    shell.connections.handle_bytes(peer.connection_id, frame, 0)
    shell.connections.handle_closed(peer.connection_id, None, 0)
    assert [type(each) for each in shell.connections.poll_actions()] == [EndAuthentication]


def versions_answer_bytes(request: Any) -> bytes:
    return b"".join(codec.encode_response(versions_answer(), request.version, request.correlation_id))


@pytest.mark.parametrize("settings", [{}, PLAIN])
def test_answers_are_bounded_until_it_is_ready(settings: dict[str, Any]) -> None:
    shell = Shell(**settings)
    peer = shell.connect(-1)
    shell.give(peer, (MAX_SETUP_FRAME_BYTES + 1).to_bytes(4, "big"))
    assert peer.is_closed
    shell = Shell(**settings)
    peer = shell.connect(-1)
    shell.give(peer, MAX_SETUP_FRAME_BYTES.to_bytes(4, "big"))
    assert not peer.is_closed
    shell = Shell(**settings)
    peer = log_in(shell) if settings else shell.ready()
    shell.ask()
    shell.give(peer, (MAX_SETUP_FRAME_BYTES + 1).to_bytes(4, "big"))
    assert not peer.is_closed


# Hints


def test_tls_alert_says_that_the_listener_speaks_tls() -> None:
    shell = Shell()
    peer = shell.connect(-1)
    shell.give(peer, bytes.fromhex("15030300020246"))
    assert "speaks TLS: set security.protocol=SSL or SASL_SSL" in str(shell.connections.last_failure)


def test_listener_that_closes_after_api_versions_may_want_sasl(caplog: pytest.LogCaptureFixture) -> None:
    shell = Shell()
    for _ in range(3):
        peer = shell.ready()
        shell.ask()
        shell.close(peer, NetworkError("closed"))
        assert "it may want SASL (security.protocol=SASL_PLAINTEXT)" in str(shell.connections.last_failure)
        shell.advance(2 * SECOND)
    assert len([each for each in caplog.records if each.levelno == logging.WARNING]) == 1
    peer = shell.ready()
    shell.ask()
    shell.answer(peer, messages.MetadataResponse())
    shell.close(peer, NetworkError("closed"))
    assert "SASL" not in str(shell.connections.last_failure)


# Sessions


@pytest.mark.parametrize("seed", range(5))
def test_session_is_renewed_before_its_end(seed: int) -> None:
    login = Login(10 * SECOND)
    assert session_after(login, Random(seed), 11 * SECOND) == UNLIMITED
    login.session_lifetime_ms = 100_000
    session = session_after(login, Random(seed), 11 * SECOND)
    assert 95 * SECOND <= session.renew_ns <= 105 * SECOND
    assert session.renew_ns < session.end_ns < 110 * SECOND
    login.session_lifetime_ms = 500
    session = session_after(login, Random(seed), 11 * SECOND)
    assert session.renew_ns == 12 * SECOND  # brokers refuse another within a second
    assert session.end_ns < 10 * SECOND + 500 * MS
    login.session_lifetime_ms = 2**63 - 1
    assert session_after(login, Random(seed), 11 * SECOND).renew_ns < NEVER


def test_session_is_renewed_between_requests_in_flight() -> None:
    shell = new_shell()
    peer = log_in(shell, lifetime_ms=100_000)
    use_until_due(shell, peer, 100_000)
    first = shell.ask()
    assert shell.connections.is_ready(-1, shell.now_ns)  # until the token is there
    shell.token(peer, b"again")
    assert kinds(peer)[-2:] == [METADATA, HANDSHAKE]
    assert not shell.connections.is_ready(-1, shell.now_ns)
    assert shell.connections.delay_ns(-1, shell.now_ns) == NEVER
    shell.answer(peer, messages.MetadataResponse())
    assert [each.request for each in shell.taken()][-1] is first
    assert not shell.connections.is_ready(-1, shell.now_ns)
    accept(shell, peer)
    assert bytes(peer.requests()[-1].message.auth_bytes) == b"again"
    assert not shell.connections.is_ready(-1, shell.now_ns)
    finish(shell, peer, 100_000)
    assert shell.connections.is_ready(-1, shell.now_ns)
    assert not peer.is_closed
    shell.ask()
    assert shell.tokens_due == {}


def test_idle_connection_is_not_renewed_until_it_is_used() -> None:
    shell = new_shell(connections_max_idle_ms=10**9)
    peer = log_in(shell, lifetime_ms=100_000)
    shell.advance(200 * SECOND)
    assert shell.tokens_due == {}
    assert not shell.connections.is_ready(-1, shell.now_ns)  # the broker would close it
    assert shell.connections.delay_ns(-1, shell.now_ns) == 0
    assert shell.connections.least_loaded(shell.now_ns) == -1
    shell.connections.connect(-1, shell.now_ns)
    shell.poll()
    assert shell.connections.delay_ns(-1, shell.now_ns) == NEVER
    assert shell.connections.least_loaded(shell.now_ns) == -1  # and no other node is used
    shell.token(peer, b"again")
    accept(shell, peer)
    finish(shell, peer, 100_000)
    assert shell.connections.is_ready(-1, shell.now_ns)


def test_session_without_lifetime_lasts() -> None:
    shell = new_shell(connections_max_idle_ms=-1)
    log_in(shell)
    shell.advance(10**6 * SECOND)
    assert shell.connections.is_ready(-1, shell.now_ns)
    shell.ask()
    assert shell.tokens_due == {}


def test_last_positive_lifetime_counts() -> None:
    shell = new_shell()
    peer = asked(shell, b"one")
    shell.answer(peer, passed(100_000, b"challenge"))
    shell.token(peer, b"two")
    finish(shell, peer, 0)
    use_until_due(shell, peer, 100_000)


def test_handshake_waits_for_the_write_of_the_request_before_it() -> None:
    shell = new_shell()
    peer = log_in(shell, lifetime_ms=100_000)
    use_until_due(shell, peer, 100_000)
    shell.produce(written=False)
    size_bytes = len(peer.unwritten)
    shell.connections.handle_token(peer.connection_id, b"again", shell.now_ns)
    shell.poll()
    assert len(peer.unwritten) == size_bytes
    shell.write(peer, size_bytes - 1)
    assert len(peer.unwritten) == 1
    shell.write(peer, 1)  # the request without an answer is done
    shell.write(peer)
    assert kinds(peer)[-2:] == [messages.ProduceRequest, HANDSHAKE]


def test_refused_renewal_fails_what_is_in_flight_as_a_disconnect() -> None:
    shell = new_shell()
    peer = log_in(shell, lifetime_ms=100_000)
    use_until_due(shell, peer, 100_000)
    shell.ask()
    shell.token(peer, b"again")
    shell.answer(peer, messages.MetadataResponse())
    assert [each.error for each in shell.taken()] == [None]  # it was answered before
    accept(shell, peer)
    shell.answer(peer, messages.SaslAuthenticateResponse(error_code=58, error_message="expired"))
    assert peer.is_closed
    assert isinstance(shell.connections.authentication_error, SaslAuthenticationError)


def test_failed_login_is_a_disconnect_for_requests_in_flight() -> None:
    shell = new_shell()
    peer = log_in(shell, lifetime_ms=100_000)
    use_until_due(shell, peer, 100_000)
    shell.ask()
    shell.token(peer, b"again")
    shell.close(peer, AuthenticationError("a TLS error"))
    (response,) = shell.taken()
    assert isinstance(response.error, NetworkError)
    assert response.error.retriable
    assert isinstance(response.error.__cause__, AuthenticationError)


@pytest.mark.parametrize("error", [NetworkError("no answer"), AuthenticationError("no"), None])
def test_session_goes_on_while_its_renewal_has_no_token(
    error: KafkaError | None, caplog: pytest.LogCaptureFixture
) -> None:
    shell = new_shell(socket_connection_setup_timeout_max_ms=10_000)
    peer = log_in(shell, lifetime_ms=1_000_000)
    use_until_due(shell, peer, 1_000_000)
    for _ in range(2):
        if error is not None:
            shell.token(peer, error)
        else:
            shell.advance(10 * SECOND)
        assert not peer.is_closed
        assert shell.connections.authentication_error is None  # the connection still works
        assert shell.tokens_due == {}
        shell.ask()  # too early for another
        assert shell.tokens_due == {}
        shell.answer(peer, messages.MetadataResponse())
        shell.advance(2 * SECOND)
        shell.ask()
        shell.answer(peer, messages.MetadataResponse())
        assert shell.tokens_due
    assert len([each for each in caplog.records if each.levelno >= logging.WARNING]) == 1
    shell.advance(100 * SECOND)
    assert not shell.connections.is_ready(-1, shell.now_ns)  # its end


def test_leaving_node_is_not_closed_while_it_owes_answers() -> None:
    shell = new_shell()
    peer = log_in(shell, lifetime_ms=100_000)
    use_until_due(shell, peer, 100_000)
    shell.ask()
    shell.token(peer, b"again")
    shell.connections.set_nodes({1: Node(1, "b", 9092, None)})
    shell.connections.handle_timeout(shell.now_ns)
    assert not peer.is_closed
    shell.answer(peer, messages.MetadataResponse())
    assert not peer.is_closed
    shell.answer(peer, ACCEPTED)
    shell.advance(SECOND)
    assert shell.taken()[-1].error is None


def test_throttled_time_does_not_count_for_the_login() -> None:
    shell = new_shell(request_timeout_ms=1000, linger_ms=0)
    peer = log_in(shell, lifetime_ms=100_000)
    use_until_due(shell, peer, 100_000)
    shell.ask()
    shell.answer(peer, messages.MetadataResponse(throttle_time_ms=3000))
    shell.token(peer, b"again")
    shell.advance(3900 * MS)
    assert not peer.is_closed
    accept(shell, peer)
    finish(shell, peer)
    assert shell.connections.is_ready(-1, shell.now_ns)


def test_ready_follows_from_every_state_of_a_login() -> None:
    for state in (ConnectionState.AUTHENTICATING, ConnectionState.REAUTHENTICATING):
        assert ConnectionState.READY in TRANSITIONS[state].values()
        assert ConnectionState.DISCONNECTED in TRANSITIONS[state].values()


# Metrics


def counted(registry: MetricsRegistry, now_ns: int) -> dict[str, float]:
    found = registry.snapshot(now_ns // MS)
    return {
        name.name: value
        for name, value in found.items()
        if "authentication" in name.name and value and not name.name.endswith("rate") and value == value
    }


def test_logins_are_counted() -> None:
    registry = MetricsRegistry("me")
    shell = new_shell(registry=registry)
    peer = connect(shell)
    assert counted(registry, 0) == {}  # it is connected, but not authenticated
    accept(shell, peer)
    shell.token(peer, b"first")
    finish(shell, peer, 100_000)
    once = {"successful-authentication-total": 1, "successful-authentication-no-reauth-total": 1}
    assert counted(registry, 0) == once
    use_until_due(shell, peer, 100_000)
    shell.advance(20 * MS)
    shell.token(peer, b"again")
    accept(shell, peer)
    shell.advance(10 * MS)
    finish(shell, peer, 100_000)
    again = {
        "successful-reauthentication-total": 1,
        "reauthentication-latency-avg": 30,
        "reauthentication-latency-max": 30,
    }
    assert counted(registry, shell.now_ns) == once | again


@pytest.mark.parametrize("is_renewal", [False, True])
def test_failed_logins_are_counted(is_renewal: bool) -> None:
    registry = MetricsRegistry("me")
    shell = new_shell(registry=registry)
    if is_renewal:
        peer = log_in(shell, lifetime_ms=100_000)
        use_until_due(shell, peer, 100_000)
        shell.token(peer, b"token")
        accept(shell, peer)
    else:
        peer = asked(shell)
    shell.answer(peer, messages.SaslAuthenticateResponse(error_code=58))
    found = counted(registry, shell.now_ns)
    assert found.get("failed-authentication-total", 0) == (not is_renewal)
    assert found.get("failed-reauthentication-total", 0) == is_renewal
