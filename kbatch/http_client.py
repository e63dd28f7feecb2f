"""Requests over HTTP and HTTPS by urllib, with time-outs for connecting, each read and the whole answer.

Redirects are not followed, because they could take credentials to another host. Answers are bounded. The
proxies of the environment serve https; a proxy must not see what plain HTTP on loopback sends.
"""

import http.client
import socket
import ssl
import threading
import time
import urllib.request
from base64 import b64decode
from collections.abc import Callable, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from urllib.error import HTTPError, URLError

from kbatch.errors.words import shown_without
from kbatch.unpatched import shut_down

MAX_ANSWER_BYTES = 1 << 20
MAX_ERROR_BYTES = 1 << 16


class HttpAnswer:
    """A server's answer, or what came instead. It has no representation, as it may have a secret.

    Attributes
    ----------
    status : int
        The answer's status; 0 if there is no answer.
    body : bytes
        The answer's body; one byte longer than `max_bytes` if it is too large.
    failure : str or None
        Why no answer came.
    distrust : str or None
        Why the server's certificate was refused.
    retry_after : float or None
        Seconds after which the server wants to be asked again.
    """

    def __init__(
        self,
        status: int = 0,
        body: bytes = b"",
        failure: str | None = None,
        distrust: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        self.status = status
        self.body = body
        self.failure = failure
        self.distrust = distrust
        self.retry_after = retry_after


class HttpClient:
    """Makes requests, each over a connection of its own, on the threads that call it.

    Parameters
    ----------
    connect_seconds, read_seconds : float
        Limits for connecting and for each read; the whole answer may take their sum.
    context : Callable
        Returns the ssl.SSLContext of a request to https. Its ValueError becomes the answer's `failure`.
    max_bytes : int
        The largest body that is read.
    """

    def __init__(
        self,
        *,
        connect_seconds: float,
        read_seconds: float,
        context: Callable[[], ssl.SSLContext],
        max_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        self.connect_seconds = connect_seconds
        self.read_seconds = read_seconds
        self.context = context
        self.max_bytes = max_bytes
        self.is_closed = False
        self._running: set[_Request] = set()

    def __call__(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> HttpAnswer:
        """Return the answer. It does not raise: a traceback would show urllib's locals, with the secrets."""
        request = _Request(self)
        self._running.add(request)
        try:
            return request.answer(method, url, headers, body)
        finally:
            self._running.discard(request)

    def close(self) -> None:
        """Interrupt the requests of other threads; later ones fail."""
        self.is_closed = True
        for request in list(self._running):
            request.interrupt()


class _Request:
    """One request on its connection."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self._socket: socket.socket | None = None
        self._is_late = False

    def answer(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpAnswer:
        timer = threading.Timer(self._client.connect_seconds + self._client.read_seconds, self._give_up)
        timer.daemon = True
        timer.start()
        try:
            answer = self._exchange(method, url, headers, body)
        finally:
            timer.cancel()
            self._socket = None
        # An interrupted answer may look like a short one.
        return self._failed(None, headers) if self._is_late or self._client.is_closed else answer

    def interrupt(self) -> None:
        """Fail the thread that waits for the socket."""
        connected = self._socket
        if connected is not None:
            with suppress(OSError):  # it has ended
                shut_down(connected)

    def _exchange(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpAnswer:
        try:
            request = urllib.request.Request(url, body, dict(headers), method=method)
            with self._opener(url).open(request, timeout=self._client.connect_seconds) as response:
                return HttpAnswer(response.status, response.read(self._client.max_bytes + 1))
        except HTTPError as error:
            with error:
                seconds = retry_after(error.headers.get("Retry-After"), time.time())
                return HttpAnswer(error.code, _read_some(error), retry_after=seconds)
        except URLError as error:
            return self._failed(error.reason, headers)
        except (OSError, http.client.HTTPException, ValueError) as error:
            return self._failed(error, headers)

    def _failed(self, reason: object, headers: Mapping[str, str]) -> HttpAnswer:
        if isinstance(reason, ssl.SSLCertVerificationError):
            return HttpAnswer(distrust=reason.verify_message)
        if self._client.is_closed:
            return HttpAnswer(failure="the client is closed")
        if self._is_late or isinstance(reason, TimeoutError):
            seconds = self._client.connect_seconds + self._client.read_seconds
            return HttpAnswer(failure=f"no answer in {seconds:g} s")
        words = shown_without(credentials_in(headers), str(reason))  # a bad status line is an error's text
        return HttpAnswer(failure=words or type(reason).__name__)

    def _give_up(self) -> None:
        self._is_late = True
        self.interrupt()

    def _opener(self, url: str) -> urllib.request.OpenerDirector:
        opener = urllib.request.OpenerDirector()
        if is_https(url):
            opener.add_handler(urllib.request.ProxyHandler())
            opener.add_handler(_HttpsHandler(self._note_connected, self._client.context()))
        else:
            opener.add_handler(_HttpHandler(self._note_connected))
        opener.add_handler(urllib.request.HTTPDefaultErrorHandler())
        opener.add_handler(urllib.request.HTTPErrorProcessor())
        return opener

    def _note_connected(self, connected: socket.socket) -> None:
        connected.settimeout(self._client.read_seconds)
        self._socket = connected
        if self._client.is_closed or self._is_late:
            self.interrupt()


def credentials_in(headers: Mapping[str, str]) -> list[str]:
    """Return the secrets of an Authorization header: a token, or for Basic the password too."""
    scheme, _, value = headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return [value]
    try:
        password = b64decode(value).decode(errors="replace").partition(":")[2]
    except ValueError:
        return [value]
    return [value, password]


def is_https(url: str) -> bool:
    return url.lower().startswith("https:")


def retry_after(value: str | None, now: float) -> float | None:
    """Return the seconds that a header Retry-After says, as a number or as a date; None if it says none."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def _read_some(error: HTTPError) -> bytes:
    try:
        return error.read(MAX_ERROR_BYTES)
    except (OSError, http.client.HTTPException):
        return b""


def _telling(
    kind: type[http.client.HTTPConnection], connected: Callable[[socket.socket], None]
) -> type[http.client.HTTPConnection]:
    """Return a kind of connection that tells of its socket, once TLS is agreed upon."""

    class Connection(kind):  # type: ignore[valid-type, misc]
        def connect(self) -> None:
            super().connect()
            connected(self.sock)

    return Connection


class _HttpHandler(urllib.request.HTTPHandler):
    def __init__(self, connected: Callable[[socket.socket], None]) -> None:
        super().__init__()
        self._connection = _telling(http.client.HTTPConnection, connected)

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._connection, request)


class _HttpsHandler(urllib.request.HTTPSHandler):
    def __init__(self, connected: Callable[[socket.socket], None], context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._connection = _telling(http.client.HTTPSConnection, connected)
        self._trusted_by = context

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._connection, request, context=self._trusted_by)
