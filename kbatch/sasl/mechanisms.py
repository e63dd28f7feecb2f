"""The mechanism that a configuration names, with its credentials."""

from collections.abc import Callable

from kbatch.config import ClientConfig, Password
from kbatch.sasl.exchange import Mechanism, RunCoroutine
from kbatch.sasl.plain import Plain
from kbatch.sasl.scram import Scram


def mechanism_of(config: ClientConfig, run_coroutine: RunCoroutine) -> Mechanism:
    """Return the mechanism of sasl.mechanism.

    Parameters
    ----------
    config : ClientConfig
        With a security.protocol that has SASL.
    run_coroutine : callable
        Blocks the login thread until a coroutine has its result, and returns it. An AsyncProducer runs the
        coroutine on its event loop.

    Raises
    ------
    ConfigError
        If a value cannot be used, or the package that a mechanism needs is not installed.
    """
    return _MECHANISMS[config.sasl_mechanism](config, run_coroutine)


def _plain(config: ClientConfig, run_coroutine: RunCoroutine) -> Mechanism:
    return Plain(*_login(config))


def _scram(config: ClientConfig, run_coroutine: RunCoroutine) -> Mechanism:
    tokenauth = getattr(config, "sasl_scram_tokenauth", False)
    return Scram(config.sasl_mechanism, *_login(config), tokenauth=tokenauth)


def _login(config: ClientConfig) -> tuple[str, Password]:
    """Return user name and password, which the rules of the configuration require."""
    return config.sasl_username or "", config.sasl_password or Password("")


_MECHANISMS: dict[str, Callable[[ClientConfig, RunCoroutine], Mechanism]] = {
    "PLAIN": _plain,
    "SCRAM-SHA-256": _scram,
    "SCRAM-SHA-512": _scram,
}
