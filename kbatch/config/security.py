"""Rules between the keys of TLS and SASL: who is trusted, and how the client logs in.

No error shows a password, a token, PEM text or the line of sasl.jaas.config.
"""

import logging
from collections.abc import Collection, Mapping

from kbatch.config import jaas
from kbatch.config.values import EXTENSIONS, Rule, Values
from kbatch.errors import ConfigError
from kbatch.errors.words import without_login

logger = logging.getLogger(__name__)

# Keys that a connection in plain text would ignore.
TLS_KEYS = ("ssl.",)
SASL_KEYS = ("sasl.", "enable.sasl.", "https.")
PKCS12_NAMES = (".p12", ".pfx", ".jks")
PEM_NAMES = (".pem", ".crt", ".cer", ".key")
LOOPBACK = ("localhost", "127.0.0.1", "::1")
RETRIEVER = "sasl.oauthbearer.jwt.retriever.class"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
# What a mechanism needs; the needs of OAUTHBEARER depend on the source of its tokens.
NEEDS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("PLAIN", *SCRAM), ("sasl.username", "sasl.password")),
    "GSSAPI": ("sasl.kerberos.service.name",),
}
REMEDIES = {
    "GSSAPI": "set it to the first part of the brokers' principal, usually kafka",
    **dict.fromkeys(("PLAIN", *SCRAM), "set them, or sasl.jaas.config"),
}
# Keys that only a role uses.
OF_ROLE = ("sasl.aws.role.session.name", "sasl.aws.sts.region")
# Keys that only one source of tokens uses.
OF_ENDPOINT = (
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.private.key.file",
    "sasl.oauthbearer.assertion.private.key.pem",
)


def _security_protocol(values: Values, given: Collection[str]) -> None:
    """Refuse to speak plain text by mistake, and warn of keys that the protocol ignores."""
    keys = {prefixes: _starting(given, prefixes) for prefixes in (TLS_KEYS, SASL_KEYS)}
    if "security.protocol" not in given and (names := [*keys[TLS_KEYS], *keys[SASL_KEYS]]):
        wanted = "SASL_SSL, or SASL_PLAINTEXT" if keys[SASL_KEYS] else "SSL"
        raise ConfigError(
            f"security.protocol must be set with {', '.join(names)}: by default connections are plain text "
            f"without a login; set {wanted}, or PLAINTEXT to ignore the other keys"
        )
    protocol = values["security.protocol"]
    ignored = {"SSL": SASL_KEYS, "SASL_PLAINTEXT": TLS_KEYS}.get(protocol, ())
    if names := _starting(given, ignored):
        logger.warning("security.protocol=%s ignores %s", protocol, ", ".join(names))


def _starting(names: Collection[str], prefixes: tuple[str, ...]) -> list[str]:
    return sorted(name for name in names if name.startswith(prefixes))


def _at_most_one(names: Collection[str], values: Values) -> None:
    """Refuse more than one of the keys."""
    found = [name for name in names if values[name] is not None]
    if len(found) > 1:
        raise ConfigError(f"{' and '.join(found)} cannot both be set; remove one of them")


# TLS


def _stores(values: Values, given: Collection[str]) -> None:
    """Find the types of the stores (DefaultSslEngineFactory), and refuse what does not fit them."""
    for store, others in (
        ("ssl.truststore", ("ssl.truststore.certificates",)),
        ("ssl.keystore", ("ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.key.location")),
    ):
        location, has_password = values[f"{store}.location"], values[f"{store}.password"] is not None
        if has_password and location is None:
            raise ConfigError(f"{store}.password needs {store}.location; set it, or remove the password")
        if f"{store}.type" not in given and location is not None:
            values[f"{store}.type"] = _type_of(location, has_password)
        type = values[f"{store}.type"]
        if type == "PEM" and has_password:
            raise ConfigError(
                f"{store}.password is for PKCS12, but {store}.location={location!r} is PEM; remove it (an "
                "encrypted private key has ssl.key.password)"
            )
        if type != "PEM" and (text := [name for name in others if name in given]):
            raise ConfigError(
                f"{store}.type={type} contradicts {' and '.join(text)}, which is PEM; remove one of them"
            )
        if type == "PKCS12" and location is None:
            raise ConfigError(f"{store}.type=PKCS12 needs {store}.location; set it")
        if type == "JKS":
            # Since Java 9 keytool writes PKCS12 under this name; who reads the file refuses the old format.
            values[f"{store}.type"] = "PEM" if location is None else "PKCS12"


def _type_of(location: str, has_password: bool) -> str:
    """Return the type of a store by its name. PEM has no store password, so with one it is PKCS12."""
    name = location.lower()
    is_pkcs12 = name.endswith(PKCS12_NAMES) or (has_password and not name.endswith(PEM_NAMES))
    return "PKCS12" if is_pkcs12 else "PEM"


def _tls(values: Values, given: Collection[str]) -> None:
    """Require one source each for trust, chain and private key (DefaultSslEngineFactory)."""
    ours = [name for name in _starting(given, TLS_KEYS) if name != "ssl.context"]
    if "ssl.context" in given and ours:
        raise ConfigError(
            f"ssl.context replaces all other ssl keys: remove {', '.join(ours)}, and configure the context"
        )
    for pair in (
        ("ssl.truststore.location", "ssl.truststore.certificates"),
        ("ssl.keystore.location", "ssl.keystore.certificate.chain"),
        ("ssl.key.location", "ssl.keystore.key"),
        ("ssl.keystore.location", "ssl.keystore.key"),
    ):
        _at_most_one(pair, values)
    for name, needed in (
        ("ssl.key.location", "ssl.keystore.location"),
        ("ssl.keystore.key", "ssl.keystore.certificate.chain"),
        ("ssl.keystore.certificate.chain", "ssl.keystore.key"),
    ):
        if name in given and needed not in given:
            raise ConfigError(f"{name} needs {needed}; set a private key and its certificates together")
    passwords = [values["ssl.keystore.password"], values["ssl.key.password"]]
    if values["ssl.keystore.type"] == "PKCS12" and None not in passwords and passwords[0] != passwords[1]:
        raise ConfigError(
            "ssl.key.password must be ssl.keystore.password, as a PKCS12 store has one password; remove it"
        )


# SASL


def _login(values: Values, given: Collection[str]) -> None:
    """Complete and check the credentials of the mechanism, if the security protocol has SASL."""
    if not values["security.protocol"].startswith("SASL_"):
        return
    handler = str(values["sasl.login.callback.handler.class"])
    if values["sasl.mechanism"] == "OAUTHBEARER" and handler.endswith("IAMOAuthBearerLoginCallbackHandler"):
        values["sasl.mechanism"] = "AWS_MSK_IAM"
    mechanism = values["sasl.mechanism"]
    if values["sasl.username"] is not None and "sasl.mechanism" not in given:
        raise ConfigError(
            f"sasl.mechanism must be set with sasl.username, as its default is {mechanism}; set PLAIN, "
            "SCRAM-SHA-256 or SCRAM-SHA-512"
        )
    if values["sasl.jaas.config"] is not None:
        _jaas(values, given)
    if missing := [name for name in NEEDS.get(mechanism, ()) if values[name] is None]:
        raise ConfigError(f"sasl.mechanism={mechanism} needs {' and '.join(missing)}; {REMEDIES[mechanism]}")
    if mechanism in ("PLAIN", *SCRAM):
        _name_and_password(values, mechanism)
    elif mechanism == "OAUTHBEARER":
        _tokens(values)
    elif mechanism == "AWS_MSK_IAM":
        _role(values)


def _jaas(values: Values, given: Collection[str]) -> None:
    for name, value in jaas.values_of(values["sasl.jaas.config"].value, values["sasl.mechanism"]).items():
        if name in given and values[name] != value:
            raise ConfigError(
                f"sasl.jaas.config and {name} cannot both be set to different values; remove one of them"
            )
        values[name] = value


def _name_and_password(values: Values, mechanism: str) -> None:
    """Refuse what a broker cannot accept: U+0000 (RFC 4616, RFC 5802), and empty texts (PlainSaslServer)."""
    texts = {"sasl.username": values["sasl.username"], "sasl.password": values["sasl.password"].value}
    for name, text in texts.items():
        if "\0" in text:
            raise ConfigError(f"{name} must not contain the character U+0000 with {mechanism}; remove it")
        if not text and (name == "sasl.username" or mechanism == "PLAIN"):
            raise ConfigError(f"{name} must not be empty with {mechanism}; is a variable unset?")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"{name} must be text that UTF-8 can express; remove surrogates") from None
    if values["sasl.scram.tokenauth"] and mechanism == "PLAIN":
        raise ConfigError(
            "sasl.scram.tokenauth=true needs sasl.mechanism SCRAM-SHA-256 or SCRAM-SHA-512, got PLAIN"
        )


def _role(values: Values) -> None:
    """Require the role of the keys that only a role uses."""
    of_role = [name for name in OF_ROLE if values[name] is not None]
    if of_role and values["sasl.aws.role.arn"] is None:
        raise ConfigError(f"{' and '.join(of_role)} must be set with sasl.aws.role.arn; set the role")


def _tokens(values: Values) -> None:
    """Require one source of tokens with all that it needs."""
    name = "enable.sasl.oauthbearer.unsecure.jwt"
    if values[name]:
        if values["sasl.oauthbearer.token"] is not None:
            raise ConfigError(f"{name} and sasl.oauthbearer.token cannot both be set; remove one of them")
        from kbatch.config.unsecured import UnsecuredToken  # imports json

        token, extensions = UnsecuredToken.of_text(values["sasl.oauthbearer.config"] or "")
        values["sasl.oauthbearer.token"] = token
        if extensions:
            values["sasl.oauthbearer.extensions"] = EXTENSIONS.parse(extensions)
    source = values["sasl.oauthbearer.token"]
    of_endpoint = [key for key in OF_ENDPOINT if values[key] is not None]
    if source is not None and of_endpoint:
        raise ConfigError(
            f"sasl.oauthbearer.token and {', '.join(of_endpoint)} are two sources of tokens; remove one"
        )
    if source is not None:
        return
    if values["sasl.oauthbearer.token.endpoint.url"] is None:
        raise ConfigError(
            "sasl.mechanism=OAUTHBEARER needs a source of tokens; set sasl.oauthbearer.token to a callable, "
            "or sasl.oauthbearer.token.endpoint.url with a client id and secret"
        )
    _endpoint(values)


def _endpoint(values: Values) -> None:
    """Check URL, grant and credentials (ClientCredentialsRequestFormatterFactory, JwtBearerJwtRetriever)."""
    url = values["sasl.oauthbearer.token.endpoint.url"]
    scheme = _scheme_of(url)
    retriever = values[RETRIEVER].rpartition(".")[2]
    if (retriever == "FileJwtRetriever") != (scheme == "file") and retriever != "DefaultJwtRetriever":
        raise ConfigError(
            f"{RETRIEVER}={retriever} does not fit sasl.oauthbearer.token.endpoint.url={without_login(url)}; "
            "a file has FileJwtRetriever, and a server one of the others"
        )
    if scheme == "file":
        return
    _at_most_one(("https.ca.location", "https.ca.pem"), values)
    prefix = "sasl.oauthbearer.assertion."
    assertions = [f"{prefix}file", f"{prefix}private.key.file", f"{prefix}private.key.pem"]
    _at_most_one(assertions, values)
    has_assertion = any(values[name] is not None for name in assertions)
    if retriever == "JwtBearerJwtRetriever":
        if not has_assertion:
            raise ConfigError(f"{RETRIEVER}={retriever} needs {' or '.join(assertions)}; set one of them")
        return
    secret = "sasl.oauthbearer.client.credentials.client.secret"
    client_id = "sasl.oauthbearer.client.credentials.client.id"
    if has_assertion:
        _at_most_one([secret, *assertions], values)
    elif missing := [name for name in (client_id, secret) if values[name] is None]:
        raise ConfigError(
            f"sasl.oauthbearer.token.endpoint.url needs {' and '.join(missing)}, or an assertion; set them"
        )


def _scheme_of(url: str) -> str:
    """Return the scheme of a token endpoint: a secret must not travel in plain text."""
    from urllib.parse import urlsplit  # takes memory, and few have URLs

    try:
        parts = urlsplit(url)
        host, scheme = parts.hostname, parts.scheme.lower()
        is_complete = bool(parts.path) if scheme == "file" else host is not None
    except ValueError:
        is_complete, host, scheme = False, None, ""
    if not is_complete or scheme not in ("https", "http", "file"):
        raise ConfigError(
            "sasl.oauthbearer.token.endpoint.url must be an https or file URL, such as "
            f"https://host/token, got {without_login(url)}"
        )
    if scheme == "http" and host not in LOOPBACK:
        raise ConfigError(
            "sasl.oauthbearer.token.endpoint.url must be https, as the client's secret would travel in plain "
            f"text, got {without_login(url)}; http is for this machine only"
        )
    return scheme


SECURITY_RULES: tuple[Rule, ...] = (_security_protocol, _stores, _tls, _login)
