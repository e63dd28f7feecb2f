"""The user's token callback, in the forms that other clients have: sasl.oauthbearer.token."""

import importlib
import inspect
from collections.abc import Callable
from typing import Any

from kbatch.errors import AuthenticationError, ConfigError
from kbatch.sasl.exchange import RunCoroutine
from kbatch.sasl.tokens import Token

KEY = "sasl.oauthbearer.token"
FORMS = "return a token as str, (token, expires_at[, principal[, extensions]]) or a Token"


def token_source(given: object, argument: str, run_coroutine: RunCoroutine) -> Callable[[], Token]:
    """Return a function without arguments that asks the user's callback for a token.

    Parameters
    ----------
    given : object
        A callable without arguments; one with an argument, as confluent-kafka's oauth_cb; an object with
        `token()` and perhaps `extensions()`, as aiokafka's and kafka-python's providers; or a string
        "package.module:function" that names one of them. Each may be a coroutine function.
    argument : str
        sasl.oauthbearer.config, for a callable that needs an argument.
    run_coroutine : callable
        Blocks the calling thread until a coroutine has its result.

    Raises
    ------
    ConfigError
        If it is none of these.
    """
    if isinstance(given, str):
        given = _imported(given)
    if not inspect.isclass(given) and callable(getattr(given, "token", None)):
        return _Provider(given, run_coroutine)
    if not callable(given):
        raise ConfigError(
            f"{KEY} must be a callable that returns a token, an object with token(), or a string "
            f"package.module:function, got {type(given).__name__}"
        )
    if inspect.isclass(given):
        raise ConfigError(f"{KEY} must be an object, got the class {given.__qualname__}; create an instance")
    return _Callback(given, _arguments(given, argument), run_coroutine)


def _imported(name: str) -> object:
    """Return the object that "package.module:function" names."""
    module, _, path = name.partition(":")
    if not module or not path:
        raise ConfigError(f"{KEY} must have the form package.module:function, got {name!r}")
    try:
        found: object = importlib.import_module(module)
        for attribute in path.split("."):
            found = getattr(found, attribute)
    except Exception as error:  # the module's own code runs
        raise ConfigError(f"{KEY}={name!r} cannot be imported: {type(error).__name__}: {error}") from error
    return found


def _arguments(callback: Callable[..., Any], argument: str) -> tuple[str, ...]:
    """Return the arguments to call it with: none if that is possible, else sasl.oauthbearer.config."""
    try:
        signature = inspect.signature(callback)
    except (TypeError, ValueError):  # a builtin that has none
        return ()
    for arguments in ((), (argument,)):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        return arguments
    raise ConfigError(f"{KEY} must be callable without arguments or with one, its signature is {signature}")


class _Callback:
    """A callable that returns a token, perhaps with expiry, principal and extensions."""

    def __init__(
        self, function: Callable[..., Any], arguments: tuple[str, ...], run_coroutine: RunCoroutine
    ) -> None:
        self._function = function
        self._arguments = arguments
        self._run_coroutine = run_coroutine

    def __call__(self) -> Token:
        return _raised(_as_token(_called(self._run_coroutine, self._function, *self._arguments)))


class _Provider:
    """An object with token() and perhaps extensions()."""

    def __init__(self, provider: Any, run_coroutine: RunCoroutine) -> None:
        self._provider = provider
        self._run_coroutine = run_coroutine

    def __call__(self) -> Token:
        token = _raised(_as_token(_called(self._run_coroutine, self._provider.token)))
        asked = getattr(self._provider, "extensions", None)
        extensions = _called(self._run_coroutine, asked) if callable(asked) else None
        if not extensions:
            return token
        return Token(token.value, token.expires_at, extensions, token.principal)


def _called(run_coroutine: RunCoroutine, function: Callable[..., Any], *arguments: object) -> Any:
    """Return the function's result. What is async runs on the loop, a plain function on this thread."""

    async def result_on_loop() -> Any:
        return await function(*arguments)

    async def result_of(awaitable: Any) -> Any:
        return await awaitable

    if inspect.iscoroutinefunction(function):
        return run_coroutine(result_on_loop())
    result = function(*arguments)
    return run_coroutine(result_of(result)) if inspect.isawaitable(result) else result


def _as_token(answer: object) -> Token | AuthenticationError:
    """Return the callback's answer as a token, or what is wrong with it.

    The error is returned and not raised: a traceback through this frame would show the answer.
    """
    value, expires_at, principal, extensions = answer, None, None, None
    if isinstance(answer, Token):
        return answer
    if isinstance(answer, tuple | list):
        if not 2 <= len(answer) <= 4:
            return AuthenticationError(f"{KEY} returned {len(answer)} values; {FORMS}")
        value, expires_at, principal, extensions = (*answer, None, None)[:4]
    if not isinstance(value, str):
        return AuthenticationError(f"{KEY} returned a token of type {type(value).__name__}; {FORMS}")
    try:
        return Token(value, expires_at, extensions, principal)
    except AuthenticationError as error:
        return AuthenticationError(f"{KEY} returned what cannot be sent: {error}")


def _raised(token: Token | AuthenticationError) -> Token:
    if isinstance(token, AuthenticationError):
        raise token
    return token
