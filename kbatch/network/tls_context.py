"""The ssl.SSLContext for the ssl keys of the configuration.

After org.apache.kafka.common.security.ssl.DefaultSslEngineFactory.
"""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from kbatch.config import ClientConfig
from kbatch.config.values import Password
from kbatch.errors import ConfigError
from kbatch.network.cipher_suites import CipherSuites, cipher_suites
from kbatch.network.tls_stores import Pkcs12, Stamp, certificate_files, private_file, read_store, stamp

_VERSIONS = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}


def reason_of(error: ssl.SSLError) -> str:
    """Return the error's reason, such as WRONG_VERSION_NUMBER, or else its text."""
    return getattr(error, "reason", None) or str(error)


def context_of(config: ClientConfig) -> ssl.SSLContext:
    """Return the context for the ssl keys; if ssl.context is a callable, its result.

    Raises
    ------
    ConfigError
        For a missing or unsuitable file or context.
    """
    if config.ssl_context is not None:
        return _own_context(config.ssl_context)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = config.ssl_endpoint_identification_algorithm == "https"
    context.options |= ssl.OP_NO_RENEGOTIATION
    # as in Java: a trusted certificate need not be its own issuer, and may be the broker's
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _set_versions_and_ciphers(context, config)
    _load_trusted(context, config)
    _load_revoked(context, config)
    _load_own(context, config)
    return context


def locations_of(config: ClientConfig) -> dict[str, str]:
    """Return the files that `context_of` reads, by key."""
    locations = {
        "ssl.truststore.location": config.ssl_truststore_location,
        "ssl.crl.location": config.ssl_crl_location,
        "ssl.keystore.location": config.ssl_keystore_location,
        "ssl.key.location": config.ssl_key_location,
    }
    return {key: location for key, location in locations.items() if location is not None}


def files_stamp(config: ClientConfig) -> tuple[tuple[Stamp, ...], ...]:
    """Return what changes if a file that `context_of` reads does."""
    stamps = [stamp(location) for location in locations_of(config).values()]
    if config.ssl_truststore_location is None and config.ssl_truststore_certificates is None:
        default = ssl.get_default_verify_paths()
        stamps += [stamp(default.cafile)] if default.cafile is not None else []
    return tuple(stamps)


def _own_context(given: object) -> ssl.SSLContext:
    """Return the user's own context."""
    context = given
    if callable(given):
        try:
            context = given()
        except Exception as error:
            raise ConfigError(f"ssl.context failed: {type(error).__name__}: {error}") from error
    if not isinstance(context, ssl.SSLContext):
        verb = "return" if callable(given) else "be"
        # No repr, which may show a password of the user's object.
        raise ConfigError(f"ssl.context must {verb} an ssl.SSLContext, got {type(context).__name__}")
    return context


def _set_versions_and_ciphers(context: ssl.SSLContext, config: ClientConfig) -> None:
    """Set the versions of TLS and the cipher suites; as in Java, a version without a suite is out of use."""
    suites = cipher_suites(config.ssl_cipher_suites)
    versions = [_VERSIONS[name] for name in config.ssl_enabled_protocols]
    lowest, highest = min(versions), max(versions)
    if suites.is_complete and not suites.tls_1_3:
        highest = min(highest, ssl.TLSVersion.TLSv1_2)
    if suites.is_complete and not suites.openssl:
        lowest = max(lowest, ssl.TLSVersion.TLSv1_3)
    shown = ", ".join(config.ssl_cipher_suites)
    if lowest > highest:
        raise ConfigError(
            f"ssl.cipher.suites ({shown}) has no suite for the versions of ssl.enabled.protocols "
            f"({', '.join(config.ssl_enabled_protocols)}); add one, or change the versions"
        )
    context.minimum_version, context.maximum_version = lowest, highest
    with _naming("ssl.cipher.suites", shown):
        if suites.openssl:
            context.set_ciphers(suites.openssl)
        if suites.tls_1_3 and highest is ssl.TLSVersion.TLSv1_3:
            _set_tls_1_3_suites(context, suites)


def _set_tls_1_3_suites(context: ssl.SSLContext, suites: CipherSuites) -> None:
    if hasattr(context, "set_ciphersuites"):  # from Python 3.15 on
        context.set_ciphersuites(":".join(suites.tls_1_3))
        return
    enabled = [cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] == "TLSv1.3"]
    if surplus := sorted(set(enabled) - set(suites.tls_1_3)):
        raise ConfigError(
            "ssl.cipher.suites can choose among the suites of TLS 1.3 only with Python 3.15 or later; this "
            f"one also allows {', '.join(surplus)}. Add them, or set ssl.enabled.protocols=TLSv1.2"
        )


def _load_trusted(context: ssl.SSLContext, config: ClientConfig) -> None:
    location = config.ssl_truststore_location
    if location is not None:
        with _naming("ssl.truststore.location", location):
            for file in certificate_files(location):
                _load_trust_store(context, config, file)
    elif config.ssl_truststore_certificates is not None:
        with _naming("ssl.truststore.certificates", _pem(config.ssl_truststore_certificates)):
            context.load_verify_locations(cadata=config.ssl_truststore_certificates.value)
    else:
        context.load_default_certs()


def _load_trust_store(context: ssl.SSLContext, config: ClientConfig, file: str) -> None:
    password = config.ssl_truststore_password
    store = read_store(file, config.ssl_truststore_type, _text(password), "ssl.truststore")
    if store is None:
        context.load_verify_locations(cafile=file)
    elif store.certificates:
        context.load_verify_locations(cadata=store.certificates)
    else:
        raise ConfigError(f"ssl.truststore.location ({file}) has no certificates")


def _load_revoked(context: ssl.SSLContext, config: ClientConfig) -> None:
    """Load the list of revoked certificates, if there is one."""
    location = config.ssl_crl_location
    if location is None:
        return
    with _naming("ssl.crl.location", location):
        context.load_verify_locations(cafile=location)
    if not context.cert_store_stats()["crl"]:
        raise ConfigError(
            f"ssl.crl.location ({location}) has no revocation list as PEM (-----BEGIN X509 CRL)"
        )
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _load_own(context: ssl.SSLContext, config: ClientConfig) -> None:
    """Load the client's certificate and private key, if it has them."""
    location, key_location = config.ssl_keystore_location, config.ssl_key_location
    chain, key = config.ssl_keystore_certificate_chain, config.ssl_keystore_key
    if location is not None:
        named, shown = "ssl.keystore.location", location
        if key_location is not None:
            named, shown = f"{named} and ssl.key.location", f"{location} and {key_location}"
        with _naming(named, shown):
            password = _text(config.ssl_keystore_password)
            store = read_store(location, config.ssl_keystore_type, password, "ssl.keystore")
            if store is None:
                _load_chain(context, config, location, key_location)
            else:
                _load_pkcs12(context, config, store)
    elif chain is not None and key is not None:
        with (
            _naming("ssl.keystore.certificate.chain and ssl.keystore.key", _pem(chain, key)),
            private_file(f"{chain.value}\n{key.value}") as file,
        ):
            _load_chain(context, config, file, None)


def _load_pkcs12(context: ssl.SSLContext, config: ClientConfig, store: Pkcs12) -> None:
    if config.ssl_key_location is None and (store.key is None or not store.certificates):
        raise ConfigError(
            f"ssl.keystore.location ({config.ssl_keystore_location}) needs a private key and its certificate"
        )
    with private_file(store.certificates + (store.key or "")) as file:
        _load_chain(context, config, file, config.ssl_key_location)


def _load_chain(context: ssl.SSLContext, config: ClientConfig, chain: str, key: str | None) -> None:
    def ask_password() -> str:
        """Return the password of an encrypted key, for which OpenSSL would ask on the terminal."""
        if config.ssl_key_password is None:
            raise ConfigError("the private key is encrypted: give its password as ssl.key.password")
        return config.ssl_key_password.value

    context.load_cert_chain(chain, key, ask_password)


def _text(password: Password | None) -> str | None:
    return None if password is None else password.value


def _pem(*texts: Password) -> str:
    """Return what texts in PEM are, for errors, with what is often wrong with them."""
    if any("\\n" in text.value for text in texts):
        return r"PEM text, with '\n' as two characters where lines end: give it with line breaks"
    return "PEM text"


@contextmanager
def _naming(names: str, shown: str) -> Iterator[None]:
    """Turn OpenSSL's errors into a ConfigError that names the keys."""
    try:
        yield
    except ConfigError:
        raise
    except ssl.SSLError as error:
        raise ConfigError(f"{names} ({shown}) is not what OpenSSL can use: {reason_of(error)}") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"{names} ({shown}) cannot be used: {error}") from error
