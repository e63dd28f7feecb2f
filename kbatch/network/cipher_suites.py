"""Cipher suites by IANA's names, which Java uses, and OpenSSL's names for them.

The table has the suites up to TLS 1.2 of the IANA registry "TLS Cipher Suites" that OpenSSL has as well. It
omits those with pre-shared keys or SRP, for which the configuration has no secrets, and those without
encryption or authentication. OpenSSL's names come from the library in use, by the suites' numbers.
"""

import ssl
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from kbatch.errors import ConfigError

IANA_SUITES = {
    "TLS_RSA_WITH_AES_128_CBC_SHA": 0x002F,
    "TLS_DHE_DSS_WITH_AES_128_CBC_SHA": 0x0032,
    "TLS_DHE_RSA_WITH_AES_128_CBC_SHA": 0x0033,
    "TLS_RSA_WITH_AES_256_CBC_SHA": 0x0035,
    "TLS_DHE_DSS_WITH_AES_256_CBC_SHA": 0x0038,
    "TLS_DHE_RSA_WITH_AES_256_CBC_SHA": 0x0039,
    "TLS_RSA_WITH_AES_128_CBC_SHA256": 0x003C,
    "TLS_RSA_WITH_AES_256_CBC_SHA256": 0x003D,
    "TLS_DHE_DSS_WITH_AES_128_CBC_SHA256": 0x0040,
    "TLS_RSA_WITH_CAMELLIA_128_CBC_SHA": 0x0041,
    "TLS_DHE_DSS_WITH_CAMELLIA_128_CBC_SHA": 0x0044,
    "TLS_DHE_RSA_WITH_CAMELLIA_128_CBC_SHA": 0x0045,
    "TLS_DHE_RSA_WITH_AES_128_CBC_SHA256": 0x0067,
    "TLS_DHE_DSS_WITH_AES_256_CBC_SHA256": 0x006A,
    "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256": 0x006B,
    "TLS_RSA_WITH_CAMELLIA_256_CBC_SHA": 0x0084,
    "TLS_DHE_DSS_WITH_CAMELLIA_256_CBC_SHA": 0x0087,
    "TLS_DHE_RSA_WITH_CAMELLIA_256_CBC_SHA": 0x0088,
    "TLS_RSA_WITH_AES_128_GCM_SHA256": 0x009C,
    "TLS_RSA_WITH_AES_256_GCM_SHA384": 0x009D,
    "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256": 0x009E,
    "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": 0x009F,
    "TLS_DHE_DSS_WITH_AES_128_GCM_SHA256": 0x00A2,
    "TLS_DHE_DSS_WITH_AES_256_GCM_SHA384": 0x00A3,
    "TLS_RSA_WITH_CAMELLIA_128_CBC_SHA256": 0x00BA,
    "TLS_DHE_DSS_WITH_CAMELLIA_128_CBC_SHA256": 0x00BD,
    "TLS_DHE_RSA_WITH_CAMELLIA_128_CBC_SHA256": 0x00BE,
    "TLS_RSA_WITH_CAMELLIA_256_CBC_SHA256": 0x00C0,
    "TLS_DHE_DSS_WITH_CAMELLIA_256_CBC_SHA256": 0x00C3,
    "TLS_DHE_RSA_WITH_CAMELLIA_256_CBC_SHA256": 0x00C4,
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": 0xC009,
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": 0xC00A,
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": 0xC013,
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": 0xC014,
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": 0xC023,
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384": 0xC024,
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": 0xC027,
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384": 0xC028,
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": 0xC02B,
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": 0xC02C,
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": 0xC02F,
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": 0xC030,
    "TLS_RSA_WITH_ARIA_128_GCM_SHA256": 0xC050,
    "TLS_RSA_WITH_ARIA_256_GCM_SHA384": 0xC051,
    "TLS_DHE_RSA_WITH_ARIA_128_GCM_SHA256": 0xC052,
    "TLS_DHE_RSA_WITH_ARIA_256_GCM_SHA384": 0xC053,
    "TLS_DHE_DSS_WITH_ARIA_128_GCM_SHA256": 0xC056,
    "TLS_DHE_DSS_WITH_ARIA_256_GCM_SHA384": 0xC057,
    "TLS_ECDHE_ECDSA_WITH_ARIA_128_GCM_SHA256": 0xC05C,
    "TLS_ECDHE_ECDSA_WITH_ARIA_256_GCM_SHA384": 0xC05D,
    "TLS_ECDHE_RSA_WITH_ARIA_128_GCM_SHA256": 0xC060,
    "TLS_ECDHE_RSA_WITH_ARIA_256_GCM_SHA384": 0xC061,
    "TLS_ECDHE_ECDSA_WITH_CAMELLIA_128_CBC_SHA256": 0xC072,
    "TLS_ECDHE_ECDSA_WITH_CAMELLIA_256_CBC_SHA384": 0xC073,
    "TLS_ECDHE_RSA_WITH_CAMELLIA_128_CBC_SHA256": 0xC076,
    "TLS_ECDHE_RSA_WITH_CAMELLIA_256_CBC_SHA384": 0xC077,
    "TLS_RSA_WITH_AES_128_CCM": 0xC09C,
    "TLS_RSA_WITH_AES_256_CCM": 0xC09D,
    "TLS_DHE_RSA_WITH_AES_128_CCM": 0xC09E,
    "TLS_DHE_RSA_WITH_AES_256_CCM": 0xC09F,
    "TLS_RSA_WITH_AES_128_CCM_8": 0xC0A0,
    "TLS_RSA_WITH_AES_256_CCM_8": 0xC0A1,
    "TLS_DHE_RSA_WITH_AES_128_CCM_8": 0xC0A2,
    "TLS_DHE_RSA_WITH_AES_256_CCM_8": 0xC0A3,
    "TLS_ECDHE_ECDSA_WITH_AES_128_CCM": 0xC0AC,
    "TLS_ECDHE_ECDSA_WITH_AES_256_CCM": 0xC0AD,
    "TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8": 0xC0AE,
    "TLS_ECDHE_ECDSA_WITH_AES_256_CCM_8": 0xC0AF,
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": 0xCCA8,
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": 0xCCA9,
    "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256": 0xCCAA,
}

_OF_TLS_1_3 = ("TLS_AES_", "TLS_CHACHA20_")
# Signals that Java lists among the suites; OpenSSL sends them by itself (RFC 5746, RFC 7507).
_SIGNALS = ("TLS_EMPTY_RENEGOTIATION_INFO_SCSV", "TLS_FALLBACK_SCSV")


class CipherSuites(NamedTuple):
    """The value of ssl.cipher.suites.

    Attributes
    ----------
    openssl : str
        A cipher string of OpenSSL for TLS up to 1.2; empty if no such suite was given.
    tls_1_3 : tuple of str
        The suites of TLS 1.3, for which IANA and OpenSSL have the same names.
    is_complete : bool
        True if the suites are IANA's, so that versions of TLS without a suite among them are out of use, as
        in Java. A cipher string of OpenSSL says nothing about TLS 1.3.
    """

    openssl: str
    tls_1_3: tuple[str, ...]
    is_complete: bool


def cipher_suites(names: Sequence[str]) -> CipherSuites:
    """Return the suites for names of either kind.

    Raises
    ------
    ConfigError
        For an IANA name that is unknown, or that the OpenSSL in use does not have.
    """
    names = [name for name in names if name not in _SIGNALS]
    tls_1_3 = tuple(name for name in names if name.startswith(_OF_TLS_1_3))
    older = [name for name in names if name not in tls_1_3]
    ours = [_openssl_name(name) if name.startswith(("TLS_", "SSL_")) else name for name in older]
    is_complete = bool(names) and all(name.startswith(("TLS_", "SSL_")) for name in names)
    return CipherSuites(":".join(ours), tls_1_3, is_complete)


def _openssl_name(iana_name: str) -> str:
    # Java's oldest names are those of SSL 3.0
    number = IANA_SUITES.get("TLS_" + iana_name[4:])
    name = None if number is None else _openssl_names().get(number)
    if name is None:
        raise ConfigError(f"ssl.cipher.suites: {ssl.OPENSSL_VERSION} has no suite {iana_name}; remove it")
    return name


@cache
def _openssl_names() -> dict[int, str]:
    """Return OpenSSL's names by the suites' numbers."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers("ALL:COMPLEMENTOFALL:@SECLEVEL=0")
    # the upper half of OpenSSL's ids is its own
    return {cipher["id"] & 0xFFFF: cipher["name"] for cipher in context.get_ciphers()}
