"""Listeners: on which ports a node listens, with which security protocol, and who may log in there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

SCRAM_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
PASSWORD_MECHANISMS = ("PLAIN", *SCRAM_HASHES)
MECHANISMS = (*PASSWORD_MECHANISMS, "OAUTHBEARER")
CLIENT_AUTH = ("none", "requested", "required")


class _Layers(NamedTuple):
    has_tls: bool
    has_sasl: bool


SECURITY_PROTOCOLS = {
    "PLAINTEXT": _Layers(False, False),
    "SSL": _Layers(True, False),
    "SASL_PLAINTEXT": _Layers(False, True),
    "SASL_SSL": _Layers(True, True),
}


@dataclass(frozen=True)
class Listener:
    """A listener of every node, with a port of its own.

    Attributes
    ----------
    security_protocol : str
        PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
    mechanisms : sequence of str
        sasl.enabled.mechanisms: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. Empty means those with
        passwords. GSSAPI needs a KDC, which this broker does not have.
    client_auth : str
        ssl.client.auth: "none", "requested" or "required". The certificate's subject is then the principal of
        an SSL listener.
    connections_max_reauth_ms : int or None
        The longest session before a client must log in again (KIP-368); None takes the broker's option.
    unsecured_tokens : bool
        True if OAUTHBEARER takes tokens without a signature (KIP-255) instead of the broker's signed ones.

    Raises
    ------
    ValueError
        A value is not one of these; the text names it.
    """

    security_protocol: str = "PLAINTEXT"
    mechanisms: tuple[str, ...] = ()
    client_auth: str = "none"
    connections_max_reauth_ms: int | None = None
    unsecured_tokens: bool = False

    def __post_init__(self) -> None:
        _check("security_protocol", self.security_protocol, SECURITY_PROTOCOLS)
        _check("client_auth", self.client_auth, CLIENT_AUTH)
        mechanisms = (self.mechanisms,) if isinstance(self.mechanisms, str) else tuple(self.mechanisms)
        for mechanism in mechanisms:
            _check("mechanism", mechanism, MECHANISMS)
        if mechanisms and not self.has_sasl:
            raise ValueError(f"{self.security_protocol} has no SASL mechanisms, got {list(mechanisms)}")
        if self.client_auth != "none" and not self.has_tls:
            raise ValueError(f"client_auth needs SSL or SASL_SSL, got {self.security_protocol}")
        if self.unsecured_tokens and "OAUTHBEARER" not in mechanisms:
            raise ValueError("unsecured_tokens needs the mechanism OAUTHBEARER")
        if self.has_sasl and not mechanisms:
            mechanisms = PASSWORD_MECHANISMS
        object.__setattr__(self, "mechanisms", mechanisms)

    @classmethod
    def of(cls, value: Listener | str | tuple[str, Iterable[str]] | Mapping[str, Any]) -> Listener:
        """Convert an element of `Broker(listeners=)`; raises ValueError or TypeError."""
        if isinstance(value, Listener):
            return value
        if isinstance(value, str):
            return cls(value)
        if isinstance(value, Mapping):
            return cls(**value)
        if isinstance(value, tuple) and len(value) == 2:
            return cls(value[0], value[1])  # type: ignore[arg-type]  # any iterable; made a tuple above
        raise TypeError(
            "a listener must be a security protocol, (security protocol, mechanisms) or a Listener, "
            f"got {value!r}"
        )

    @property
    def has_tls(self) -> bool:
        return SECURITY_PROTOCOLS[self.security_protocol].has_tls

    @property
    def has_sasl(self) -> bool:
        return SECURITY_PROTOCOLS[self.security_protocol].has_sasl


def _check(name: str, value: str, known: Iterable[str]) -> None:
    if value not in known:
        hint = "; it needs a KDC: use a real Kafka" if value == "GSSAPI" else ""
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}{hint}")
