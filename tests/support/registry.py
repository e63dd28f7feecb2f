"""A schema registry on loopback that speaks Confluent's REST API, and does what a test says."""

from __future__ import annotations

import json
import ssl
import threading
import uuid
from collections import deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from kbatch.schema_registry import SchemaRegistry

HOST = "127.0.0.1"
# How soon the server sees that it is to end.
POLL_SECONDS = 0.01
DROP = 0


class Registry:
    """The server, from entering the context to its end.

    Attributes
    ----------
    url : str
    requests : list of str
        The method and path of each request.
    headers : list of dict
        The headers of each request, with lower-case names.
    faults : deque
        What is answered first: (status, body), or (DROP, b"") for a connection that ends.
    retry_after : str or None
        The header Retry-After of what is answered first.
    before : Callable or None
        Called with each path before it is answered.
    formats : bool
        False if it fails at requests for a format.
    metadata : dict
        By subject and version.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.requests: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.faults: deque[tuple[int, bytes]] = deque()
        self.before: Callable[[str], object] | None = None
        self.authorization: str | None = None
        self.formats = True
        self.metadata: dict[str, dict[int, dict[str, str]]] = {}
        self._schemas: list[dict[str, Any]] = []  # by id, from 1 on
        self._subjects: dict[str, list[int]] = {}
        self._deleted: dict[str, list[int]] = {}
        self._settings: dict[tuple[str, str], str] = {}
        self.retry_after: str | None = None
        self._lock = threading.Lock()
        server = self

        class Handler(_Handler):
            registry = server

        self._server = ThreadingHTTPServer((HOST, 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # refused certificates
        scheme, host = "http", HOST
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            scheme, host = "https", "localhost"
        self.url = f"{scheme}://{host}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(POLL_SECONDS,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def client(self, **options: Any) -> SchemaRegistry:
        """Return a client that waits briefly between its repetitions."""
        return SchemaRegistry(self.url, **({"retry_backoff_ms": 1, "unknown_id_seconds": 0} | options))

    def add(
        self, subject: str, schema: Any, schema_type: str = "AVRO", references: list[Any] | None = None
    ) -> int:
        """Register a schema, and return its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        fields = {"schema": text, "schemaType": schema_type, "references": references or []}
        with self._lock:
            if fields not in self._schemas:
                self._schemas.append(fields)
            number = self._schemas.index(fields) + 1
            versions = self._subjects.setdefault(subject, [])
            if number not in versions:
                versions.append(number)
            return number

    def guid(self, number: int) -> uuid.UUID:
        return uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(self._schemas[number - 1]))

    # Answers

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        parts = [unquote(part) for part in path.strip("/").split("/")]
        match method, parts:
            case "GET", ["schemas", "ids", number]:
                if 0 < int(number) <= len(self._schemas):
                    return 200, self._schema(int(number))
                return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
            case "GET", ["schemas", "ids", number, "versions"]:
                found = [
                    {"subject": subject, "version": versions.index(int(number)) + 1}
                    for subject, versions in self._subjects.items()
                    if int(number) in versions
                ]
                missing = {"error_code": 40403, "message": f"Schema {number} not found"}
                return (200, found) if found else (404, missing)
            case "GET", ["schemas", "guids", guid]:
                for schema_id in range(1, len(self._schemas) + 1):
                    if str(self.guid(schema_id)) == guid:
                        return 200, self._schema(schema_id)
                return 404, {"error_code": 40403, "message": f"Schema {guid} not found"}
            case "GET", ["subjects", subject, "versions", version]:
                return self._version(subject, version)
            case "GET", ["subjects", subject, "metadata"]:
                query = parse_qs(urlsplit(self.requests[-1]).query)
                wanted = dict(zip(query["key"], query["value"], strict=True))
                versions = [
                    each
                    for each, found in self.metadata.get(subject, {}).items()
                    if wanted.items() <= found.items()
                ]
                return self._version(subject, str(versions[-1] if versions else 10**6))
            case "POST", ["subjects", subject, "versions"]:
                if "never" in body["schema"]:
                    return 409, {"error_code": 409, "message": "Schema being registered is incompatible"}
                schema_id = self.add(subject, body["schema"], body["schemaType"], body.get("references"))
                return 200, {"id": schema_id, "guid": str(self.guid(schema_id))}
            case "POST", ["subjects", subject]:
                return self._lookup(subject, body)
            case "POST", ["compatibility", "subjects", subject, "versions", version]:
                status, found = self._version(subject, version)
                reasons = (
                    [f"reader type: {body['schema'].strip(chr(34))}"] if "never" in body["schema"] else []
                )
                return (
                    status,
                    {"is_compatible": not reasons, "messages": reasons} if status == 200 else found,
                )
            case "GET", ["subjects"]:
                return 200, sorted(name for name, versions in self._subjects.items() if versions)
            case "GET", ["subjects", subject, "versions"]:
                return 200, [number + 1 for number in range(len(self._subjects[subject]))]
            case "DELETE", ["subjects", subject, *rest]:
                return self._delete(subject, rest)
            case method, ["config" | "mode" as kind, *named]:
                return self._setting(method, kind, "".join(named), body)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _delete(self, subject: str, rest: list[str]) -> tuple[int, Any]:
        """Delete a subject, or its last version. One that is deleted is remembered as such."""
        versions = self._subjects.get(subject, [])
        if rest:
            versions.pop()
            return 200, int(rest[1])
        if versions:
            self._deleted[subject] = list(range(1, len(versions) + 1))
            versions.clear()
            return 200, self._deleted[subject]
        if self.requests[-1].endswith("permanent=true"):
            return 200, self._deleted.pop(subject)
        return 404, {"error_code": 40404, "message": f"Subject '{subject}' was soft deleted."}

    def _setting(self, method: str, kind: str, subject: str, body: Any) -> tuple[int, Any]:
        field = {"config": "compatibility", "mode": "mode"}[kind]
        shown = {"config": "compatibilityLevel", "mode": "mode"}[kind]
        default = {"config": "BACKWARD", "mode": "READWRITE"}[kind]
        if method == "PUT":
            self._settings[kind, subject] = body[field]
            return 200, body
        if method == "DELETE":
            del self._settings[kind, subject]
        return 200, {shown: self._settings.get((kind, subject), default)}

    def _schema(self, number: int) -> dict[str, Any]:
        fields = {name: value for name, value in self._schemas[number - 1].items() if value}
        if fields["schemaType"] == "AVRO":
            del fields["schemaType"]  # as Confluent's registry does
        return {**fields, "guid": str(self.guid(number))}

    def _version(self, subject: str, version: str) -> tuple[int, Any]:
        versions = self._subjects.get(subject, [])
        place = len(versions) if version == "latest" else int(version)
        if not versions:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        if not 0 < place <= len(versions):
            return 404, {"error_code": 40402, "message": f"Version {version} not found."}
        number = versions[place - 1]
        return 200, {**self._schema(number), "subject": subject, "version": place, "id": number}

    def _lookup(self, subject: str, body: Any) -> tuple[int, Any]:
        fields = {
            "schema": body["schema"],
            "schemaType": body["schemaType"],
            "references": body.get("references", []),
        }
        for place, number in enumerate(self._subjects.get(subject, []), 1):
            if self._schemas[number - 1] == fields:
                return 200, {**self._schema(number), "subject": subject, "version": place, "id": number}
        return 404, {"error_code": 40403, "message": "Schema not found"}


class _Handler(BaseHTTPRequestHandler):
    registry: Registry

    def do_GET(self) -> None:
        registry = self.registry
        registry.requests.append(f"{self.command} {self.path}")
        registry.headers.append({name.lower(): value for name, value in self.headers.items()})
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        if registry.before is not None:
            registry.before(self.path)
        if registry.faults:
            status, data = registry.faults.popleft()
        elif registry.authorization not in (None, self.headers.get("Authorization")):
            status, data = 401, b'{"error_code": 401, "message": "Unauthorized"}'
        else:
            address = urlsplit(self.path)
            wanted = parse_qs(address.query).get("format")
            assert wanted in (None, ["serialized"])
            status, fields = registry.answer(self.command, address.path, body)
            if wanted is not None and not registry.formats:
                status, fields = 500, {"error_code": 500, "message": "not supported"}
            data = json.dumps(fields).encode()
        if status == DROP:
            return
        self.send_response(status)
        if status >= 400 and registry.retry_after is not None:
            self.send_header("Retry-After", registry.retry_after)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_PUT = do_DELETE = do_GET

    def log_message(self, *_: Any) -> None:
        """Print nothing."""
