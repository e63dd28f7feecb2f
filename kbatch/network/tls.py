"""The TLS of a client's connections: renewed contexts, resumed sessions, and what an error means.

Theory of operation. Files may be renewed while the client runs, as cert-manager, Strimzi and Vault do. So
each connection begins with a look at them, unless there was one just now, and a change makes a new
ssl.SSLContext. If that fails, such as between the writes of a certificate and of its key, the previous
context stays in use until the next change. A look may take long, if the file system hangs: see EngineDriver.

A connection resumes the session of an earlier one to the same broker, which spares both sides most of the
handshake's computation. A resumed session does not verify names and certificates again, so that sessions are
kept for each host and port, and only as long as the context. A session is used once, as RFC 8446 asks for.

As in Kafka (SslTransportLayer), an error in the handshake is a failure to authenticate. With TLS 1.3 so is an
error before the first data, since the broker verifies the client's certificate after the client's handshake
has ended. Later an error is a disconnect.
"""

import ssl
import time
from typing import Any, final

from kbatch.config import ClientConfig
from kbatch.errors import AuthenticationError, ConfigError, KafkaError, NetworkError
from kbatch.logs import ClientLogger
from kbatch.network.tls_context import context_of, files_stamp, locations_of, reason_of

logger = ClientLogger(__name__)

# By X509_V_ERR_* of openssl/x509_vfy.h.
_NOT_TRUSTED = (
    "its authority is not trusted: give that authority's certificate as ssl.truststore.location or "
    "ssl.truststore.certificates"
)
_OTHER_NAME = (
    "it is for another name: connect to a name in it, or renew it with this one (an empty "
    "ssl.endpoint.identification.algorithm accepts any name, which allows a man in the middle)"
)
_VERIFY_REMEDIES = {
    3: "ssl.crl.location has no list of its authority: add that",
    9: "it is not valid yet: is this machine's clock right?",
    10: "it has expired: renew it",
    12: "the list of ssl.crl.location has expired: renew it",
    18: _NOT_TRUSTED,
    19: _NOT_TRUSTED,
    20: _NOT_TRUSTED,
    21: _NOT_TRUSTED,
    23: "its authority has revoked it (ssl.crl.location): renew it",
    62: _OTHER_NAME,
    64: _OTHER_NAME,
}
# By a part of the reason of an ssl.SSLError.
_NO_TLS = (
    "the listener does not speak TLS: use the port of an SSL or SASL_SSL listener, or "
    "security.protocol=PLAINTEXT or SASL_PLAINTEXT"
)
_NO_VERSION = "no version of TLS is common to both sides: see ssl.enabled.protocols"
_NO_CLIENT = (
    "the broker wants a client certificate that is valid and that it trusts: see ssl.keystore.location"
)
_REMEDIES = {
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "HTTP_REQUEST": _NO_TLS,
    "RECORD_LAYER_FAILURE": _NO_TLS,
    "UNSUPPORTED_PROTOCOL": _NO_VERSION,
    "PROTOCOL_VERSION": _NO_VERSION,
    "NO_PROTOCOLS_AVAILABLE": _NO_VERSION,
    "CERTIFICATE_REQUIRED": _NO_CLIENT,
    "UNKNOWN_CA": _NO_CLIENT,
    "BAD_CERTIFICATE": _NO_CLIENT,
    "UNSUPPORTED_CERTIFICATE": _NO_CLIENT,
    "CERTIFICATE_UNKNOWN": _NO_CLIENT,
    "CERTIFICATE_EXPIRED": _NO_CLIENT,
    "CERTIFICATE_REVOKED": _NO_CLIENT,
    "HANDSHAKE_FAILURE": "no cipher is common to both sides (ssl.cipher.suites), or " + _NO_CLIENT,
    "UNRECOGNIZED_NAME": "the listener does not serve this host name: see advertised.listeners",
}
# Files are not looked at again for so long: a client that connects to many brokers at once looks once.
_LOOK_NS = 1_000_000_000
# The session that was kept first makes room above this number, so that names that come and go do not add up.
_MOST_SESSIONS = 256


def explained(error: ssl.SSLError) -> str:
    """Return what failed in a handshake, and the remedy."""
    if isinstance(error, ssl.SSLCertVerificationError):
        remedy = _VERIFY_REMEDIES.get(error.verify_code)
        text = f"the broker's certificate was refused: {error.verify_message}"
        return text if remedy is None else f"{text}; {remedy}"
    reason = reason_of(error)
    remedy = next((remedy for part, remedy in _REMEDIES.items() if part in reason), None)
    text = f"TLS failed: {reason}"
    return text if remedy is None else f"{text}; {remedy}"


@final
class ClientTls:
    """The TLS of one client, used by the thread or the event loop that owns its connections.

    Raises
    ------
    ConfigError
        For unusable ssl keys.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._stamp: object = files_stamp(config)
        self._context = context_of(config)
        self._failure = ""
        self._looked_ns = time.monotonic_ns()
        # of the last connection to a host and port, since reading its session costs a fifth of a handshake
        self._last: dict[tuple[str, int], ssl.SSLObject] = {}

    def handshake(self, host: str, port: int, peer: str) -> "Handshake":
        """Begin a connection: `peer` names it in errors."""
        return Handshake(self, self._context, (host, port), peer)

    def wants_look(self, now_ns: int) -> bool:
        """True if `look` may find another context."""
        if self._config.ssl_context is None:
            return now_ns - self._looked_ns >= _LOOK_NS
        return callable(self._config.ssl_context)

    @property
    def looks_at(self) -> str:
        """What a look waits for, for errors."""
        if self._config.ssl_context is not None:
            return "the callable given as ssl.context has not returned"
        files = ", ".join(f"{key}={path}" for key, path in locations_of(self._config).items())
        return f"the client still reads the certificates of {files or 'the system'}"

    def look(self) -> ssl.SSLContext | None:
        """Return a new context if the configured files have changed, or that of the user's callable. It may
        take long: one thread at a time calls it, and not the owner's.
        """
        if self._config.ssl_context is None:
            now = files_stamp(self._config)
            if now == self._stamp:
                return None
            self._stamp = now  # the state before reading: a change from here on is seen the next time
        try:
            context = context_of(self._config)
        except ConfigError as error:
            if str(error) != self._failure:
                logger.warning(
                    "TLS: the renewed configuration is unusable, the previous one stays: %s", error
                )
            self._failure = str(error)
            return None
        self._failure = ""
        return context

    def adopt(self, context: ssl.SSLContext | None) -> None:
        """Use the result of `look` for new connections, on the owner's thread."""
        self._looked_ns = time.monotonic_ns()
        if context is not None and context is not self._context:
            self._context = context
            self._last.clear()
            logger.info("TLS: new connections use the renewed certificates, keys and trust stores")

    def take_session(self, context: ssl.SSLContext, address: tuple[str, int]) -> ssl.SSLSession | None:
        """Return the session to resume, if there is one; it is used once."""
        if context is not self._context:
            return None
        last = self._last.pop(address, None)
        return None if last is None else last.session

    def keep_session(self, context: ssl.SSLContext, address: tuple[str, int], tls: ssl.SSLObject) -> None:
        """Keep the session of a connection for the next one to the same host and port."""
        # the user's own context may verify by itself or get other keys, which resuming would leave out
        if context is not self._context or self._config.ssl_context is not None:
            return
        if len(self._last) >= _MOST_SESSIONS:
            del self._last[next(iter(self._last))]
        self._last[address] = tls


@final
class Handshake:
    """The TLS of one connection, from its beginning until its broker has proved that all is well.

    asyncio and uvloop take it instead of an ssl.SSLContext, whose `wrap_bio` is all that they call: they
    have no parameter for a session.

    Attributes
    ----------
    server_name : str
        The name that the certificate must have, without the dot at the end of an absolute name.
    is_over : bool
        True from the first data on.
    """

    def __init__(
        self, owner: ClientTls, context: ssl.SSLContext, address: tuple[str, int], peer: str
    ) -> None:
        self._owner = owner
        self._context = context
        self._address = address
        self._peer = peer
        self._tls: ssl.SSLObject | None = None
        self._is_shaking = True
        self._is_verified = False
        self.server_name = address[0].rstrip(".")
        self.is_over = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
    ) -> ssl.SSLObject:
        """Return the TLS of the connection, which resumes an earlier session if possible.

        Raises
        ------
        ValueError
            For a host name that no certificate can have.
        """
        session = self._owner.take_session(self._context, self._address)
        self._tls = self._context.wrap_bio(
            incoming, outgoing, server_hostname=self.server_name, session=session
        )
        return self._tls

    def handle_shaken(self) -> None:
        """Handle the end of the client's handshake."""
        assert self._tls is not None
        self._is_shaking = False
        self._is_verified = self._tls.version() != "TLSv1.3"

    def handle_data(self) -> None:
        """Handle the first data. Sessions of TLS 1.3 have come by then."""
        assert self._tls is not None
        self.is_over = self._is_verified = True
        self._owner.keep_session(self._context, self._address, self._tls)

    @property
    def hint(self) -> str:
        """The likely reason of a sudden end, to follow its text, or nothing."""
        if self._is_shaking:
            return " in the TLS handshake: is it an SSL listener's port?"
        if not self._is_verified:
            return (
                " before its first answer: does it want another client certificate (ssl.keystore.location)?"
            )
        return ""

    def error_of(self, error: ssl.SSLError) -> KafkaError:
        """Return the error of a connection that TLS has ended."""
        if isinstance(error, ssl.SSLZeroReturnError | ssl.SSLEOFError):
            return NetworkError(f"the broker closed the connection to {self._peer}{self.hint}")
        if self._is_verified:
            return NetworkError(f"the connection to {self._peer} broke: TLS failed: {reason_of(error)}")
        return AuthenticationError(f"no connection to {self._peer}: {explained(error)}")
