"""Read sasl.jaas.config: a login module of Java and its options, as values of keys.

After org.apache.kafka.common.security.JaasConfig, whose tokens are those of java.io.StreamTokenizer. No error
shows an option or its value: a part of a password that was not quoted may look like either.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kbatch.config.values import BOOLEAN, EXTENSIONS, LITERAL, SECRET, STRING, URL, ValueType
from kbatch.errors import ConfigError

# StreamTokenizer's tokens. Line comments begin with one slash, so a bare path is a comment.
TOKEN = re.compile(
    r"""
    (?P<blank> [\x00-\x20]+ | /\*.*?\*/ | /(?!\*)[^\r\n]* )
  | (?P<word> [A-Za-z_$\xa0-\U0010ffff][A-Za-z0-9_.$\xa0-\U0010ffff-]* )
  | "(?P<double> (?:[^"\\\r\n]|\\.)* )"
  | '(?P<single> (?:[^'\\\r\n]|\\.)* )'
  | (?P<other> . )
    """,
    re.DOTALL | re.VERBOSE,
)
ESCAPE = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
CONTROL_FLAGS = ("required", "requisite", "sufficient", "optional")
FORM = 'MODULE required option="value" ...;'


class Option(NamedTuple):
    """The key that an option sets, if any, and the type of its values."""

    key: str | None
    type: ValueType


class Module(NamedTuple):
    """A login module: its mechanisms, its options, and those that have no effect outside Java."""

    mechanisms: tuple[str, ...]
    options: Mapping[str, Option]
    ignored: tuple[str, ...] = ()


class Entry(NamedTuple):
    """A parsed line: the module's name without its package, and the options as they are written."""

    module: str
    options: Mapping[str, str]


def _pem(text: str) -> str:
    return {"PEM": text}[text.upper()]


_PEM = Option(
    None, ValueType("string", "PEM; convert the store, or set https.ca.location instead", _pem, "str")
)
_PASSWORDS = {"username": Option("sasl.username", LITERAL), "password": Option("sasl.password", SECRET)}
_AWS = {
    "awsRoleArn": Option("sasl.aws.role.arn", STRING),
    "awsRoleSessionName": Option("sasl.aws.role.session.name", STRING),
    "awsStsRegion": Option("sasl.aws.sts.region", STRING),
    "awsProfileName": Option("sasl.aws.profile.name", STRING),
}
_CLIENT_ID = Option("sasl.oauthbearer.client.credentials.client.id", LITERAL)
_CLIENT_SECRET = Option("sasl.oauthbearer.client.credentials.client.secret", SECRET)
_SCOPE = Option("sasl.oauthbearer.scope", STRING)
_AUTHORITIES = Option("https.ca.location", STRING)
_OAUTH = {
    "clientId": _CLIENT_ID,
    "clientSecret": _CLIENT_SECRET,
    "scope": _SCOPE,
    "ssl.truststore.location": _AUTHORITIES,
    "ssl.truststore.type": _PEM,
    "ssl.truststore.certificates": Option("https.ca.pem", SECRET),
    # Strimzi's
    "oauth.client.id": _CLIENT_ID,
    "oauth.client.secret": _CLIENT_SECRET,
    "oauth.scope": _SCOPE,
    "oauth.token.endpoint.uri": Option("sasl.oauthbearer.token.endpoint.url", URL),
    "oauth.ssl.truststore.location": _AUTHORITIES,
    "oauth.ssl.truststore.type": _PEM,
}
_KERBEROS = {
    "keyTab": Option("sasl.kerberos.keytab", STRING),
    "principal": Option("sasl.kerberos.principal", STRING),
    "serviceName": Option("sasl.kerberos.service.name", STRING),
    "ticketCache": Option("sasl.kerberos.ticket.cache", STRING),
    "useKeyTab": Option("useKeyTab", BOOLEAN),
    "useTicketCache": Option("useTicketCache", BOOLEAN),
}
# Java's Kerberos module needs them to do what the Kerberos library does anyway.
_KERBEROS_IGNORED = ("storeKey", "debug", "doNotPrompt", "refreshKrb5Config", "isInitiator", "renewTGT")
MODULES: Mapping[str, Module] = {
    "PlainLoginModule": Module(("PLAIN",), _PASSWORDS, ("serviceName",)),
    "ScramLoginModule": Module(
        ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        {**_PASSWORDS, "tokenauth": Option("sasl.scram.tokenauth", BOOLEAN)},
        ("serviceName",),
    ),
    "OAuthBearerLoginModule": Module(
        ("OAUTHBEARER", "AWS_MSK_IAM"),
        {**_OAUTH, **_AWS},
        ("serviceName", "awsDebugCreds"),
    ),
    "Krb5LoginModule": Module(("GSSAPI",), _KERBEROS, _KERBEROS_IGNORED),
    "IAMLoginModule": Module(("AWS_MSK_IAM",), _AWS, ("awsDebugCreds",)),
}
# Prefixes of options: the users of a broker's PLAIN, the extensions and the unsecured tokens of OAUTHBEARER.
USER, EXTENSION, UNSECURED = "user_", "extension_", "unsecuredLogin"


def values_of(line: str, mechanism: str) -> dict[str, object]:
    """Return the values of the keys that a line sets.

    Raises
    ------
    ConfigError
        For a line that Kafka's Java client would not read, another mechanism's module, and unknown options.
    """
    entry = parse(line)
    module = MODULES.get(entry.module)
    if module is None:
        raise ConfigError(
            f"sasl.jaas.config has the module {entry.module}; use one of {', '.join(MODULES)}, or the "
            "mechanism's own keys"
        )
    if mechanism not in module.mechanisms:
        raise ConfigError(
            f"sasl.jaas.config has the module {entry.module}, which does not fit sasl.mechanism={mechanism}; "
            f"set sasl.mechanism to {' or '.join(module.mechanisms)}"
        )
    options = dict(entry.options)
    values: dict[str, object] = {}
    if entry.module == "OAuthBearerLoginModule":
        values = _tokens(options)
    elif entry.module == "PlainLoginModule":
        options = {name: text for name, text in options.items() if not name.startswith(USER)}
    for name, text in options.items():
        if name in module.ignored:
            continue
        if name not in module.options:
            raise ConfigError(_unknown(name, entry.module))
        key, type = module.options[name]
        value = _read(name, text, type)
        if key is not None:
            values[key] = value
    if entry.module == "Krb5LoginModule":
        _kerberos(values)
    return values


def parse(line: str) -> Entry:
    """Return module and options of a line. Raise ConfigError if it is not one entry of a JAAS file."""
    tokens = _tokens_of(line)
    module, flag = next(tokens, None), next(tokens, None)
    if flag == "{":
        raise ConfigError(
            f"sasl.jaas.config is a whole section of a JAAS file; use only the {FORM} inside its braces"
        )
    if module is None or flag is None or not _text(module) or _text(flag).lower() not in CONTROL_FLAGS:
        raise ConfigError(f"sasl.jaas.config must have the form {FORM}")
    options = {}
    for token in tokens:
        if token == ";":
            break
        if next(tokens, None) != "=":
            raise ConfigError("sasl.jaas.config has an option without a value; put values in quotes")
        options[_text(token)] = _text(next(tokens, ";"))
    else:
        raise ConfigError("sasl.jaas.config must end with a semicolon")
    if next(tokens, None) is not None:
        raise ConfigError("sasl.jaas.config must have one module, which ends with the only semicolon")
    return Entry(_text(module).rpartition(".")[2], options)


def quoted(value: str) -> str:
    r"""Return a value in the quotes of a JAAS line; a backslash and a quote get a backslash before them."""
    escaped = re.sub(r'["\\\r\n]', lambda match: "\\" + match[0], value)
    return f'"{escaped}"'


class _Text(NamedTuple):
    """A token that is a word or was in quotes. A token that is a str is a sign, and equal to no text."""

    text: str


def _tokens_of(line: str) -> Iterator[_Text | str]:
    for match in TOKEN.finditer(line):
        kind = match.lastgroup
        if kind == "other":
            yield match[0]
        elif kind == "word":
            yield _Text(match[0])
        elif kind != "blank":
            yield _Text(ESCAPE.sub(_unescaped, match[str(kind)]))


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code, 8)) if code[0] in "01234567" else ESCAPED.get(code, code)


def _text(token: _Text | str) -> str:
    if isinstance(token, str):
        raise ConfigError(
            "sasl.jaas.config has a sign or a number where a name or a value must be; put values in quotes"
        )
    return token.text


def _read(name: str, text: str, type: ValueType) -> object:
    try:
        return type.parse(text)
    except (ValueError, KeyError):
        raise ConfigError(f"{name} in sasl.jaas.config must be {type.expected}") from None


def _unknown(name: str, module: str) -> str:
    import difflib  # takes memory, so only after a wrong name

    known = sorted(MODULES[module].options)
    by_lower = {each.lower(): each for each in known}
    nearest = difflib.get_close_matches(name.lower(), by_lower, n=1)
    hint = f"; did you mean {by_lower[nearest[0]]}?" if nearest else ""
    return (
        f"sasl.jaas.config has an option that kbatch does not know for {module}, which has "
        f"{', '.join(known)}{hint}"
    )


def _tokens(options: dict[str, str]) -> dict[str, object]:
    """Take extensions and unsecured tokens out of the options, and return the values of their keys."""
    extensions, unsecured = (
        {name.removeprefix(prefix): options.pop(name) for name in list(options) if name.startswith(prefix)}
        for prefix in (EXTENSION, UNSECURED)
    )
    values: dict[str, object] = {}
    if unsecured:
        from kbatch.config.unsecured import UnsecuredToken  # imports json

        token, more = UnsecuredToken.of_jaas(unsecured)
        values["sasl.oauthbearer.token"] = token
        extensions |= more
    if extensions:
        values["sasl.oauthbearer.extensions"] = _extensions(extensions)
    return values


def _extensions(extensions: Mapping[str, str]) -> object:
    try:
        return EXTENSIONS.parse(extensions)
    except ValueError:
        raise ConfigError(f"extensions in sasl.jaas.config must be {EXTENSIONS.expected}") from None


def _kerberos(values: dict[str, object]) -> None:
    """Check that keytab and ticket cache are meant: Java ignores them without these options."""
    for key, name, needed in (
        ("sasl.kerberos.keytab", "keyTab", "useKeyTab"),
        ("sasl.kerberos.ticket.cache", "ticketCache", "useTicketCache"),
    ):
        if not values.pop(needed, False) and key in values:
            raise ConfigError(f"{name} in sasl.jaas.config has no effect without {needed}=true; set that too")
