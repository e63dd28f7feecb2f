"""TLS by configuration: the ssl.SSLContext, and the remedies for failed handshakes.

After org.apache.kafka.common.security.ssl.DefaultSslEngineFactory.
"""

import ssl
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kbatch.config import ClientConfig
from kbatch.config.values import Password
from kbatch.errors import ConfigError

_VERSIONS = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}

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
    9: "it is not valid yet: is this machine's clock right?",
    10: "it has expired: renew it",
    18: _NOT_TRUSTED,
    19: _NOT_TRUSTED,
    20: _NOT_TRUSTED,
    21: _NOT_TRUSTED,
    62: _OTHER_NAME,
    64: _OTHER_NAME,
}
# By a part of the reason of an ssl.SSLError.
_NO_TLS = "the listener does not speak TLS: use the port of an SSL listener, or security.protocol=PLAINTEXT"
_NO_VERSION = "no version of TLS is common to both sides: see ssl.enabled.protocols"
_NO_CLIENT = "the broker wants a client certificate that it trusts: see ssl.keystore.location"
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
    "CERTIFICATE_UNKNOWN": _NO_CLIENT,
    "CERTIFICATE_EXPIRED": _NO_CLIENT,
    "HANDSHAKE_FAILURE": "no cipher is common to both sides (ssl.cipher.suites), or " + _NO_CLIENT,
}


def explained(error: ssl.SSLError) -> str:
    """Return what failed, and the remedy."""
    if isinstance(error, ssl.SSLCertVerificationError):
        remedy = _VERIFY_REMEDIES.get(error.verify_code)
        text = f"the broker's certificate was refused: {error.verify_message}"
        return text if remedy is None else f"{text}; {remedy}"
    reason = _reason_of(error)
    remedy = next((remedy for part, remedy in _REMEDIES.items() if part in reason), None)
    text = f"TLS failed: {reason}"
    return text if remedy is None else f"{text}; {remedy}"


def _reason_of(error: ssl.SSLError) -> str:
    """Return the error's reason, such as WRONG_VERSION_NUMBER, or else its text."""
    return getattr(error, "reason", None) or str(error)


def context_of(config: ClientConfig) -> ssl.SSLContext:
    """Return the context for the ssl keys.

    Raises
    ------
    ConfigError
        For a missing or unsuitable file.
    """
    if config.ssl_context is not None:
        if not isinstance(config.ssl_context, ssl.SSLContext):
            raise ConfigError(f"ssl.context must be an ssl.SSLContext, got {config.ssl_context!r}")
        return config.ssl_context
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = config.ssl_endpoint_identification_algorithm == "https"
    context.options |= ssl.OP_NO_RENEGOTIATION
    versions = [_VERSIONS[name] for name in config.ssl_enabled_protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if config.ssl_cipher_suites:
        with _naming("ssl.cipher.suites", ":".join(config.ssl_cipher_suites)):
            context.set_ciphers(":".join(config.ssl_cipher_suites))
    _load_trusted(context, config)
    _load_own(context, config)
    return context


def _load_trusted(context: ssl.SSLContext, config: ClientConfig) -> None:
    if config.ssl_truststore_location is not None:
        with _naming("ssl.truststore.location", config.ssl_truststore_location):
            context.load_verify_locations(cafile=config.ssl_truststore_location)
    elif config.ssl_truststore_certificates is not None:
        with _naming("ssl.truststore.certificates", "PEM text"):
            context.load_verify_locations(cadata=config.ssl_truststore_certificates.value)
    else:
        context.load_default_certs()


def _load_own(context: ssl.SSLContext, config: ClientConfig) -> None:
    """Load the client's certificate and private key, if it has them."""
    password = config.ssl_key_password

    def ask_password() -> str:
        """Return the password of an encrypted key, for which OpenSSL would ask on the terminal."""
        if password is None:
            raise ConfigError("the private key is encrypted: give its password as ssl.key.password")
        return password.value

    with ExitStack() as files:
        if config.ssl_keystore_location is not None:
            chain, key = config.ssl_keystore_location, config.ssl_key_location
            named = "ssl.keystore.location" if key is None else "ssl.keystore.location and ssl.key.location"
            shown = chain if key is None else f"{chain} and {key}"
        elif config.ssl_keystore_certificate_chain is not None and config.ssl_keystore_key is not None:
            chain = files.enter_context(_as_file(config.ssl_keystore_certificate_chain))
            key = files.enter_context(_as_file(config.ssl_keystore_key))
            named, shown = "ssl.keystore.certificate.chain and ssl.keystore.key", "PEM text"
        else:
            return
        with _naming(named, shown):
            context.load_cert_chain(chain, key, ask_password)


@contextmanager
def _as_file(text: Password) -> Iterator[str]:
    """Yield the path of a private file with the text, since OpenSSL reads keys only from files."""
    with tempfile.TemporaryDirectory(prefix="kbatch-") as directory:
        path = Path(directory) / "key.pem"
        path.touch(mode=0o600)
        path.write_text(text.value)
        yield str(path)


@contextmanager
def _naming(names: str, shown: str) -> Iterator[None]:
    """Turn OpenSSL's errors into a ConfigError that names the keys."""
    try:
        yield
    except ConfigError:
        raise
    except ssl.SSLError as error:
        raise ConfigError(f"{names} ({shown}) is not what OpenSSL can use: {_reason_of(error)}") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"{names} ({shown}) cannot be used: {error}") from error
