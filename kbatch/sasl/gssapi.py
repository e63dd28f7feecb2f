"""GSSAPI (RFC 4752): Kerberos, by the package `gssapi` over the system's library.

With a keytab the library gets tickets and renews them, in a cache in memory: there is no kinit, no thread and
no file of tickets. The library reads krb5.conf, or the file that the variable KRB5_CONFIG names.
"""

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbatch.config import ClientConfig
from kbatch.distribution import pip_install
from kbatch.errors import AuthenticationError, ConfigError, NetworkError
from kbatch.errors.words import shown
from kbatch.sasl.exchange import Unrefreshed, check_size

if TYPE_CHECKING:
    from gssapi.exceptions import GSSError

# RFC 4752, section 3.1: the layers that the server offers, as bits, and the one that Kafka has: none.
NO_SECURITY_LAYER = 1
OFFER_BYTES = 4
# No security layer, no message size, and no authorization id: the principal acts as itself.
ANSWER = bytes([NO_SECURITY_LAYER, 0, 0, 0])
# Kerberos takes two messages; more than some are a broker that never ends.
MAX_STEPS = 10

_CAUSES = (
    "the usual causes are: bootstrap.servers or advertised.listeners have no fully qualified names; reverse "
    "look-up changes them (rdns in krb5.conf); sasl.kerberos.service.name or .domain.name is not that of the "
    "brokers' principal"
)
_CLOCK = "set the clocks of this machine and of the KDC"
_TICKET = "renew the ticket with kinit, or set sasl.kerberos.keytab, which renews tickets by itself"
# Codes of Kerberos (krb5.h, RFC 4120): whether the error may pass, and the remedy. None: that for a client
# without a ticket, which depends on where tickets come from.
_BASE = -1765328384
KERBEROS_ERRORS: Mapping[int, tuple[bool, str | None]] = {
    _BASE + 6: (False, "add the client's principal to the KDC, or correct sasl.kerberos.principal"),
    _BASE + 7: (False, _CAUSES),
    _BASE + 14: (False, "allow an encryption type that both the KDC and the keytab have"),
    _BASE + 18: (False, "the principal is disabled at the KDC"),
    _BASE + 24: (False, "the keytab's key is not the KDC's; export it again"),
    _BASE + 29: (True, "the KDC is busy"),
    _BASE + 32: (True, _TICKET),
    _BASE + 33: (True, _CLOCK),
    _BASE + 34: (True, "the broker takes the message for a replay"),
    _BASE + 37: (True, _CLOCK),
    _BASE + 141: (False, None),
    _BASE + 154: (True, "the realm's KDC cannot be found; see krb5.conf and KRB5_CONFIG"),
    _BASE + 156: (True, "check the network, and the KDCs in krb5.conf"),
    _BASE + 195: (False, None),
    _BASE + 203: (False, "the keytab has no key of the principal; see klist -k"),
    _BASE + 220: (True, "the KDC's name cannot be resolved; see krb5.conf and KRB5_CONFIG"),
}
_numbers = itertools.count(1)


class Gssapi(Unrefreshed):
    """The mechanism GSSAPI.

    Raises
    ------
    ConfigError
        If `gssapi` is not installed, or the keytab cannot be read.
    """

    name = "GSSAPI"

    def __init__(self, config: ClientConfig) -> None:
        try:
            import gssapi  # noqa: F401
        except (ImportError, OSError) as error:
            raise ConfigError(
                f"sasl.mechanism=GSSAPI needs the package gssapi: {error}; {pip_install('gssapi')} (on "
                "Linux that builds it from source, which needs libkrb5-dev or krb5-devel)"
            ) from None
        self._service = config.sasl_kerberos_service_name
        self._domain_name = config.sasl_kerberos_domain_name
        self._principal = config.sasl_kerberos_principal
        self._store = _store_of(config)

    def exchange(self, host: str) -> "GssapiExchange":
        remedy = _TICKET
        if "client_keytab" in self._store:
            remedy = f"the keytab has no key of {self._principal or 'a principal'}; see klist -k"
        return GssapiExchange(self._context, self._domain_name or host.rstrip("."), remedy)

    def _context(self, host: str) -> Any:
        """Return a security context with the broker of that name."""
        import gssapi

        kerberos = gssapi.MechType.kerberos
        name = None
        if self._principal is not None:
            name = gssapi.Name(self._principal, gssapi.NameType.kerberos_principal)
        credentials = gssapi.Credentials(
            name=name, usage="initiate", mechs=[kerberos], store=self._store or None
        )
        target = gssapi.Name(f"{self._service}@{host}", gssapi.NameType.hostbased_service)
        flags = gssapi.RequirementFlag
        return gssapi.SecurityContext(
            name=target,
            creds=credentials,
            usage="initiate",
            mech=kerberos,
            flags=[flags.mutual_authentication, flags.integrity, flags.out_of_sequence_detection],
        )


def _store_of(config: ClientConfig) -> dict[str, str]:
    """Return where keys and tickets are, as MIT's library names it; nothing for the environment's cache."""
    keytab, cache = config.sasl_kerberos_keytab, config.sasl_kerberos_ticket_cache
    store = {} if cache is None else {"ccache": cache}
    if keytab is not None:
        _check_readable(keytab)
        store = {"ccache": f"MEMORY:kbatch-{next(_numbers)}", **store, "client_keytab": f"FILE:{keytab}"}
    return store


def _check_readable(keytab: str) -> None:
    try:
        with Path(keytab).open("rb"):
            pass
    except OSError as error:
        raise ConfigError(f"sasl.kerberos.keytab={keytab!r} cannot be read: {error.strerror}") from None


class GssapiExchange:
    """Steps of Kerberos until both sides are proved, then the server's offer and the answer to it."""

    def __init__(self, context_of: Callable[[str], Any], host: str, remedy_without_ticket: str) -> None:
        self._context_of = context_of
        self._host = host
        self._remedy_without_ticket = remedy_without_ticket
        self._context: Any = None
        self._steps = 0
        self._has_answered = False

    def step(self, challenge: bytes | None) -> bytes | None:
        """Return the next token. The steps ask the KDC and the name service."""
        from gssapi.exceptions import GSSError

        if challenge is not None:
            check_size(challenge)
        if self._has_answered:
            return None
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise AuthenticationError(f"the broker does not end the exchange of GSSAPI in {MAX_STEPS} steps")
        try:
            if self._context is None:
                self._context = self._context_of(self._host)
            if not self._context.complete:
                return self._context.step(challenge) or b""
            if not challenge:
                return b""  # RFC 4752: the server waits for this before its offer
            return self._answer(challenge)
        except GSSError as error:
            raise explained(error, self._host, self._remedy_without_ticket) from error
        except NotImplementedError as error:  # of Heimdal, for credential stores
            raise AuthenticationError(
                f"this system's Kerberos takes neither a keytab nor a cache by key ({error}); remove "
                "sasl.kerberos.keytab and sasl.kerberos.ticket.cache, and log in with kinit"
            ) from error

    def _answer(self, challenge: bytes) -> bytes:
        offer = self._context.unwrap(challenge).message
        if len(offer) != OFFER_BYTES or not offer[0] & NO_SECURITY_LAYER:
            raise AuthenticationError(
                f"the broker's offer of security layers must be {OFFER_BYTES} bytes and have none, got "
                f"{shown(offer.hex())}; Kafka protects GSSAPI by TLS only: security.protocol=SASL_SSL"
            )
        self._has_answered = True
        answer: bytes = self._context.wrap(ANSWER, False).message
        return answer


def explained(error: "GSSError", host: str, remedy_without_ticket: str) -> AuthenticationError | NetworkError:
    """Return what failed, and the remedy. An error that may pass is a NetworkError."""
    from gssapi import exceptions

    by_class: tuple[bool, str | None] = (False, "")
    if isinstance(error, exceptions.ExpiredCredentialsError | exceptions.ExpiredContextError):
        by_class = (True, _TICKET)
    elif isinstance(error, exceptions.MissingCredentialsError):
        by_class = (False, None)
    may_pass, remedy = KERBEROS_ERRORS.get(_signed(error.min_code), by_class)
    remedy = remedy_without_ticket if remedy is None else remedy
    text = f"GSSAPI failed with {host}: {_words(error)}"
    return (NetworkError if may_pass else AuthenticationError)(f"{text}; {remedy}" if remedy else text)


def _words(error: "GSSError") -> str:
    """Return the words of Kerberos, or else of GSSAPI."""
    words: list[str] = [word for word in error.get_all_statuses(error.min_code, False) if word != "Success"]
    return shown(", ".join(words or error.get_all_statuses(error.maj_code, True)))


def _signed(code: int) -> int:
    """Return a code of 32 bits as signed, as Kerberos writes it."""
    return (code + 2**31) % 2**32 - 2**31
