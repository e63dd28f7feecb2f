"""A token endpoint that answers as a test says, over HTTP or TLS, and the configurations that ask it."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from kbatch.config import ProducerConfig

HOST = "127.0.0.1"
CLIENT_ID, SECRET = "the client", "s3cret+of/the client="
# How soon the server sees that it is to end.
POLL_SECONDS = 0.01


def config(url: str, **more: Any) -> ProducerConfig:
    """Return a configuration whose tokens come from the URL; keys have underscores."""
    settings = {
        "bootstrap_servers": "localhost:9092",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": url,
    }
    return ProducerConfig(**(settings | more))


def by_secret(url: str, **more: Any) -> ProducerConfig:
    secret = {
        "sasl_oauthbearer_client_credentials_client_id": CLIENT_ID,
        "sasl_oauthbearer_client_credentials_client_secret": SECRET,
    }
    return config(url, **(secret | more))


class Request:
    """A request that the endpoint got."""

    def __init__(self, handler: BaseHTTPRequestHandler) -> None:
        self.line = handler.requestline
        self.headers = {name.lower(): value for name, value in handler.headers.items()}
        self.body = handler.rfile.read(int(handler.headers.get("Content-Length", 0))).decode()


Respond = Callable[[Request, Any], None]


@contextmanager
def endpoint(respond: Respond, certificate: Path | None = None) -> Iterator[str]:
    """Yield the URL of an endpoint. `respond` gets each request, and the file to write the raw answer to."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            respond(Request(self), self.wfile)

        do_CONNECT = do_POST

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer((HOST, 0), Handler)
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(POLL_SECONDS,))
    thread.start()
    try:
        scheme, host = ("http", HOST) if certificate is None else ("https", "localhost")
        yield f"{scheme}://{host}:{server.server_address[1]}/token"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def answer(status: int, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} text", f"Content-Length: {len(body)}", "Connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def answering(status: int, body: bytes, *headers: str) -> Respond:
    return lambda request, out: out.write(answer(status, body, *headers))
