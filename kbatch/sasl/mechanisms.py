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
    return Scram(config.sasl_mechanism, *_login(config), tokenauth=config.sasl_scram_tokenauth)


# What only some mechanisms need is imported by them: Python's asyncio and ssl take some 6 MiB.


def _oauthbearer(config: ClientConfig, run_coroutine: RunCoroutine) -> Mechanism:
    from kbatch.sasl.oauthbearer import OAuthBearer
    from kbatch.sasl.token_callback import KEY, token_source
    from kbatch.sasl.token_login import TokenLogin, policy_of

    if config.sasl_oauthbearer_token is None:
        from kbatch.sasl.oidc import URL_KEY, endpoint_source

        endpoint = endpoint_source(config)
        login = TokenLogin(endpoint, URL_KEY, policy_of(config), refreshes_apart=True)
        return OAuthBearer(login, config.sasl_oauthbearer_extensions, endpoint.close)
    argument = config.sasl_oauthbearer_config or ""
    source = token_source(config.sasl_oauthbearer_token, argument, run_coroutine)
    return OAuthBearer(TokenLogin(source, KEY, policy_of(config)), config.sasl_oauthbearer_extensions)


def _gssapi(config: ClientConfig, run_coroutine: RunCoroutine) -> Mechanism:
    from kbatch.sasl.gssapi import Gssapi

    return Gssapi(config)


def _msk(config: ClientConfig, run_coroutine: RunCoroutine) -> Mechanism:
    from kbatch.sasl.msk import MskIam

    return MskIam(config)


def _login(config: ClientConfig) -> tuple[str, Password]:
    """Return user name and password, which the rules of the configuration require."""
    return config.sasl_username or "", config.sasl_password or Password("")


_MECHANISMS: dict[str, Callable[[ClientConfig, RunCoroutine], Mechanism]] = {
    "PLAIN": _plain,
    "SCRAM-SHA-256": _scram,
    "SCRAM-SHA-512": _scram,
    "OAUTHBEARER": _oauthbearer,
    "GSSAPI": _gssapi,
    "AWS_MSK_IAM": _msk,
}
