"""A schema registry with Confluent's REST API: schemas by their id, by subject and version, and new ones.

Confluent's registry, Karapace, Redpanda and Apicurio (its ccompat API) speak it. Serializers and
deserializers take a SchemaRegistry as `registry=`.

Theory of operation. An id, a GUID and a version of a subject never change their schema. So each is requested
once in the life of a SchemaRegistry, whichever threads want it; later ones wait for the first one's answer.
That an id is unknown is believed for `MISSING_SECONDS`. The latest version is never kept.

A request goes to the URL that answered last. On a failure that may pass (no connection, no answer in time, a
5xx status) it goes to the next one at once. After all of them, it goes round again, after a wait that
doubles, or as long as the registry says (Retry-After), if that is not longer than the time-out.

A replica of a registry may not know yet what another one has just registered. So an unknown id is asked for
again for some seconds, one id at a time, before it is believed to be unknown.
"""

from __future__ import annotations

import copy
import json
import random
import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import quote, unquote, urlencode, urlsplit

from kbatch._native.io.backoff import backoff_ns
from kbatch._native.io.interrupts import NativeEvent
from kbatch.errors import ConfigError, SchemaRegistryError
from kbatch.errors.words import shown, shown_without, without_login
from kbatch.http_client import HttpAnswer, HttpClient, credentials_in, is_https
from kbatch.unpatched import real_threading
from kbatch.version import VERSION

__all__ = ["Schema", "SchemaReference", "SchemaRegistry"]

SCHEMA_TYPES = ("AVRO", "JSON", "PROTOBUF")
# How long an id is believed to be unknown, after the registry said so.
MISSING_SECONDS = 30.0
MAX_MISSING = 1024
MAX_SCHEMA_BYTES = 1 << 26
MAX_BACKOFF_MS = 1000
UNAUTHORIZED = 401
NOT_FOUND = 404
SERVER_ERROR = 500
UNKNOWN_SCHEMA = 40403
SOFT_DELETED = (40404, 40406)  # a subject, a version: it is deleted softly already
# The time of a minute that may be waited for ids that are unknown.
PATIENT_SECONDS, PATIENCE_PERIOD = 5.0, 60.0
HEADERS = {
    "Accept": "application/vnd.schemaregistry.v1+json, application/json",
    "User-Agent": f"kbatch/{VERSION}",
}
BODY_HEADERS = {"Content-Type": "application/vnd.schemaregistry.v1+json"}

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class SchemaReference:
    """A schema that another one refers to.

    Attributes
    ----------
    name : str
        What the other calls it: a type's full name in Avro, an import in Protobuf, a URL in JSON Schema.
    subject : str
    version : int
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class Schema:
    """A schema of the registry.

    Attributes
    ----------
    text : str
        The schema itself. For Protobuf in the format `serialized`: a FileDescriptorProto in base64.
    schema_type : "AVRO", "JSON" or "PROTOBUF"
    references : tuple of SchemaReference
    id : int or None
    guid : str or None
        Its id over all registries, if the registry has them.
    subject : str or None
    version : int or None
        None if the answer was not about a subject.
    """

    text: str
    schema_type: str = "AVRO"
    references: tuple[SchemaReference, ...] = ()
    id: int | None = None
    guid: str | None = None
    subject: str | None = None
    version: int | None = None


class FormatNotOfferedError(SchemaRegistryError):
    """The registry has a schema, but not in the format that is needed."""


def _not_offered(format: str) -> FormatNotOfferedError:
    return FormatNotOfferedError(
        f"the registry does not offer schemas in the format {format}; give Protobuf a message class, or a "
        "descriptor set"
    )


class SchemaRegistry:
    """A client of a schema registry, for any number of threads.

    Parameters
    ----------
    url : str or sequence of str
        One URL, or several of one registry; a str may have several, separated by commas. A user name and
        password in a URL are used as basic_auth.
    basic_auth : tuple of (user, password), "user:password", or None
    bearer_token : str, Callable, or None
        A token, or a function that returns one for each request, and once more for one that is refused.
    ssl_context : ssl.SSLContext or None
        Replaces the other ssl parameters.
    ssl_ca_location : str or None
        A file or folder of trusted authorities as PEM; None means the system's.
    ssl_certificate_location, ssl_key_location, ssl_key_password : str or None
        The client's certificate and private key as PEM; the key may be in the certificate's file.
    timeout : float
        Seconds for one attempt to get an answer.
    retries : int
        How often a request is repeated, at all URLs, after a failure that may pass.
    retry_backoff_ms : int
        The first wait between two repetitions. It doubles, with jitter, to one second at most.
    unknown_id_seconds : float
        How long an id that the registry does not know is asked for again, at most 5 s a minute in all.
    cache_size : int
        How many schemas are kept; those that were used last.
    headers : Mapping or None
        More headers of each request, such as target-sr-cluster.

    Raises
    ------
    ConfigError
        A URL, or a combination of parameters, is invalid, or a file cannot be used.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        basic_auth: tuple[str, str] | str | None = None,
        bearer_token: str | Callable[[], str] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        ssl_ca_location: str | None = None,
        ssl_certificate_location: str | None = None,
        ssl_key_location: str | None = None,
        ssl_key_password: str | None = None,
        timeout: float = 30.0,
        retries: int = 3,
        retry_backoff_ms: int = 100,
        unknown_id_seconds: float = PATIENT_SECONDS,
        cache_size: int = 1000,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._arguments = {name: value for name, value in locals().items() if name not in ("self", "url")}
        self._arguments["url"] = url if isinstance(url, str) else list(url)
        if not timeout > 0 or retries < 0 or retry_backoff_ms < 0:
            raise ConfigError(
                "timeout must be above 0, retries and retry_backoff_ms at least 0, got "
                f"{timeout!r}, {retries!r} and {retry_backoff_ms!r}"
            )
        self._urls, login = _urls_of(url)
        if sum(each is not None for each in (login, basic_auth, bearer_token)) > 1:
            raise ConfigError("the user of a URL, basic_auth and bearer_token exclude each other; give one")
        self._authorization = _authorization(basic_auth or login, bearer_token)
        self._has_tokens = callable(bearer_token)
        tls = (ssl_ca_location, ssl_certificate_location, ssl_key_location, ssl_key_password)
        if ssl_context is not None and any(each is not None for each in tls):
            raise ConfigError("ssl_context replaces all other ssl parameters: remove them, or it")
        if ssl_context is None and (any(map(is_https, self._urls)) or any(tls)):
            ssl_context = _context(*tls)
        self._send = HttpClient(
            connect_seconds=timeout / 2,
            read_seconds=timeout / 2,
            context=partial(_given, ssl_context),
            max_bytes=MAX_SCHEMA_BYTES,
        )
        self._headers = {**HEADERS, **(headers or {})}
        self._retries = retries
        self._retry_backoff_ms = retry_backoff_ms
        self._first = 0  # the URL that answered last
        if cache_size < 1 or unknown_id_seconds < 0:
            raise ConfigError(
                "cache_size must be at least 1, unknown_id_seconds at least 0, got "
                f"{cache_size!r} and {unknown_id_seconds!r}"
            )
        self._without_format_until = 0.0
        self._timeout = timeout
        self._patience = _Patience(unknown_id_seconds)
        self._schemas: _Once[Schema] = _Once(MISSING_SECONDS, cache_size)
        self._ids: _Once[int] = _Once(0.0, cache_size)
        self._found: _Once[Schema] = _Once(0.0, cache_size)

    def __reduce__(self) -> tuple[Any, ...]:
        # what is known stays here: it has locks, and may be much
        return partial(type(self), **self._arguments), ()

    def __repr__(self) -> str:
        return f"SchemaRegistry({', '.join(map(without_login, self._urls))})"

    def get(self, schema_id: int, *, subject: str | None = None, format: str | None = None) -> Schema:
        """Return the schema with that id.

        Parameters
        ----------
        schema_id : int
        subject : str or None
            A subject of its context, for registries with contexts.
        format : str or None
            "serialized" returns a Protobuf schema as a FileDescriptorProto in base64.

        Raises
        ------
        SchemaRegistryError
            The registry does not know it, refuses, or cannot be reached.
        """
        query = {"subject": subject, "format": format}
        return self._schema(f"/schemas/ids/{schema_id}", query, id=schema_id)

    def get_by_guid(self, guid: str, *, format: str | None = None) -> Schema:
        """Return the schema with that GUID, as `get` does."""
        return self._schema(f"/schemas/guids/{quote(guid, safe='')}", {"format": format}, guid=guid)

    def get_version(
        self, subject: str, version: int | str = "latest", *, format: str | None = None
    ) -> Schema:
        """Return a version of a subject, or the latest one, which is asked for in each call.

        Raises
        ------
        SchemaRegistryError
            The registry does not know it, refuses, or cannot be reached.
        """
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
        if isinstance(version, int):
            return self._schema(path, {"format": format, "deleted": "true"})
        return _schema_of(path, self._in_format(path, {"format": format}))

    def get_by_metadata(
        self, subject: str, metadata: Mapping[str, str], *, format: str | None = None
    ) -> Schema:
        """Return the latest version of a subject with these properties among its metadata, asked for in each
        call.

        Raises
        ------
        SchemaRegistryError
            The registry does not have one, or no metadata, refuses, or cannot be reached.
        """
        query = [pair for key, value in metadata.items() for pair in (("key", key), ("value", value))]
        if format is not None:
            query.append(("format", format))
        path = f"/subjects/{quote(subject, safe='')}/metadata?{urlencode(query)}"
        return _schema_of(path, self._ask("GET", path))

    def register(
        self,
        subject: str,
        schema: str,
        schema_type: str = "AVRO",
        references: Iterable[SchemaReference] = (),
        *,
        normalize: bool = False,
    ) -> int:
        """Register a schema under a subject, and return its id. A known schema keeps its id.

        Parameters
        ----------
        subject : str
            By convention the topic's name with -key or -value.
        schema : str
        schema_type : "AVRO", "JSON" or "PROTOBUF"
        references : iterable of SchemaReference
        normalize : bool
            Let the registry bring the schema into its normal form first.

        Raises
        ------
        SchemaRegistryError
            The schema is invalid or not compatible with the subject's versions, or the registry refuses for
            another reason, or cannot be reached.
        """
        path = f"/subjects/{quote(subject, safe='')}/versions"
        path = _with_query(path, {"normalize": "true" if normalize else None})
        body = _body(schema, schema_type, references)

        def ask() -> int:
            return _integer(path, self._ask("POST", path, body), "id")

        return self._ids(("register", path, body), ask)

    def lookup(
        self,
        subject: str,
        schema: str,
        schema_type: str = "AVRO",
        references: Iterable[SchemaReference] = (),
        *,
        normalize: bool = False,
    ) -> Schema:
        """Return a schema that is registered under the subject, with its id and version; parameters as in
        `register`.

        Raises
        ------
        SchemaRegistryError
            It is not registered there, or the registry refuses or cannot be reached.
        """
        path = f"/subjects/{quote(subject, safe='')}"
        path = _with_query(path, {"normalize": "true" if normalize else None})
        body = _body(schema, schema_type, references)

        return self._found(("lookup", path, body), lambda: _schema_of(path, self._ask("POST", path, body)))

    def incompatibilities(
        self,
        subject: str,
        schema: str,
        schema_type: str = "AVRO",
        references: Iterable[SchemaReference] = (),
        *,
        version: int | str = "latest",
        normalize: bool = False,
    ) -> list[str]:
        """Return why a schema cannot follow a version of a subject, by the subject's rules; an empty list if
        it can. Other parameters are those of `register`.

        Raises
        ------
        SchemaRegistryError
            There is no such version, the schema is invalid, or the registry refuses or cannot be reached.
        """
        path = f"/compatibility/subjects/{quote(subject, safe='')}/versions/{version}"
        path = _with_query(path, {"verbose": "true", "normalize": "true" if normalize else None})
        fields = self._ask("POST", path, _body(schema, schema_type, references))
        if not isinstance(fields.get("is_compatible"), bool):
            raise _unsuitable(path, "is_compatible", _names(fields))
        reasons = fields.get("messages") or ["the registry gives no reason"]
        return [] if fields["is_compatible"] else list(map(str, reasons))

    def subjects(self, prefix: str = "", *, deleted: bool = False) -> list[str]:
        """Return the subjects whose names begin so, with `deleted` also those that are deleted softly."""
        query = {"subjectPrefix": prefix or None, "deleted": "true" if deleted else None}
        path = _with_query("/subjects", query)
        return list(map(str, _checked(path, self._json("GET", path), list, "a list")))

    def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """Return the versions of a subject, with `deleted` also those that are deleted softly."""
        path = f"/subjects/{quote(subject, safe='')}/versions"
        path = _with_query(path, {"deleted": "true" if deleted else None})
        return [
            _checked(path, each, int, "numbers")
            for each in _checked(path, self._json("GET", path), list, "a list")
        ]

    def versions_of_id(self, schema_id: int) -> list[tuple[str, int]]:
        """Return the subjects, with the version in each, that have the schema with that id.

        Raises
        ------
        SchemaRegistryError
            The registry does not know it, refuses, or cannot be reached.
        """
        path = f"/schemas/ids/{schema_id}/versions"
        found = []
        for each in _checked(path, self._json("GET", path), list, "a list"):
            if not isinstance(each, dict) or not isinstance(each.get("subject"), str):
                raise _unsuitable(path, "subjects and versions", type(each).__name__)
            found.append((each["subject"], _integer(path, each, "version")))
        return found

    def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete a subject, and return its versions. Their ids can still be read, unless it is `permanent`.

        Raises
        ------
        SchemaRegistryError
            There is no such subject, another schema refers to it, or the registry refuses or cannot be
            reached.
        """
        path = f"/subjects/{quote(subject, safe='')}"
        return list(_checked(path, self._deleted(subject, path, permanent), list, "a list"))

    def delete_version(self, subject: str, version: int | str, *, permanent: bool = False) -> int:
        """Delete a version of a subject, and return it. See `delete_subject`."""
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
        return _checked(path, self._deleted(subject, path, permanent), int, "a number")

    def _deleted(self, subject: str, path: str, permanent: bool) -> Any:
        """Delete softly, which comes first, and then permanently."""
        try:
            found = self._json("DELETE", path)
        except SchemaRegistryError as error:
            if not (permanent and error.error_code in SOFT_DELETED):
                raise
        if permanent:
            found = self._json("DELETE", _with_query(path, {"permanent": "true"}))
        self._forget(subject)
        return found

    def _forget(self, subject: str) -> None:
        """Drop what is known of a subject, and of ids, which it may have had."""
        quoted = f"/subjects/{quote(subject, safe='')}"
        self._schemas.forget(lambda path: str(path).startswith((quoted, "/schemas/")))
        for known in (self._ids, self._found):
            known.forget(lambda question: isinstance(question, tuple) and str(question[1]).startswith(quoted))

    def config(self, subject: str | None = None) -> Mapping[str, Any]:
        """Return the configuration of a subject, or the registry's: `compatibilityLevel` and others. That of
        the registry counts for subjects without their own.
        """
        path = _with_query(_of_subject("/config", subject), {"defaultToGlobal": "true" if subject else None})
        return self._ask("GET", path)

    def set_config(self, subject: str | None = None, **config: Any) -> Mapping[str, Any]:
        """Set the configuration of a subject, or the registry's, as its API names the fields:
        `set_config("orders-value", compatibility="FULL")`. Return what it has set.
        """
        return self._ask("PUT", _of_subject("/config", subject), json.dumps(config).encode())

    def delete_config(self, subject: str) -> None:
        """Delete the configuration of a subject: the registry's counts for it."""
        self._json("DELETE", _of_subject("/config", subject))

    def mode(self, subject: str | None = None) -> str:
        """Return the mode of a subject, or the registry's: READWRITE, READONLY, IMPORT, ..."""
        path = _with_query(_of_subject("/mode", subject), {"defaultToGlobal": "true" if subject else None})
        return _checked(path, self._ask("GET", path).get("mode"), str, "a mode")

    def set_mode(self, mode: str, subject: str | None = None, *, force: bool = False) -> str:
        """Set the mode of a subject, or the registry's, and return it; `force` also if there are schemas."""
        path = _with_query(_of_subject("/mode", subject), {"force": "true" if force else None})
        return _checked(
            path, self._ask("PUT", path, json.dumps({"mode": mode}).encode()).get("mode"), str, "a mode"
        )

    def with_references(self, schema: Schema, *, format: str | None = None) -> list[Schema]:
        """Return a schema after all that it refers to, directly or not, each once.

        Raises
        ------
        SchemaRegistryError
            The registry does not know one of them, refuses, or cannot be reached.
        """
        found: list[Schema] = []
        seen: set[tuple[str, int]] = set()

        def add(each: Schema) -> None:
            for reference in each.references:
                if (reference.subject, reference.version) not in seen:
                    seen.add((reference.subject, reference.version))
                    add(self.get_version(reference.subject, reference.version, format=format))
            found.append(each)

        add(schema)
        return found

    def _schema(
        self, path: str, query: Mapping[str, str | None], *, id: int | None = None, guid: str | None = None
    ) -> Schema:
        def ask() -> Schema:
            return _schema_of(path, self._patience(lambda: self._in_format(path, query)), id, guid)

        return self._schemas(_with_query(path, query), ask)

    def _in_format(self, path: str, query: Mapping[str, str | None]) -> Mapping[str, Any]:
        """Return a schema in a format. A registry that fails at the format alone, as Apicurio's does with a
        500, does not offer it.
        """
        wanted = query["format"]
        try:
            if time.monotonic() < self._without_format_until and wanted is not None:
                raise _not_offered(wanted)
            return self._ask("GET", _with_query(path, query))
        except SchemaRegistryError as error:
            if wanted is None or error.status is None or error.status < SERVER_ERROR:
                raise
            self._ask("GET", _with_query(path, {**query, "format": None}))
            self._without_format_until = time.monotonic() + MISSING_SECONDS
            raise _not_offered(wanted) from error

    def _ask(self, method: str, path: str, body: bytes | None = None) -> Mapping[str, Any]:
        """Return the object that the registry answers with."""
        return _checked(path, self._json(method, path, body), dict, "a JSON object")

    def _json(self, method: str, path: str, body: bytes | None = None) -> Any:
        """Return what the registry answers with, from any URL that answers.

        Raises
        ------
        SchemaRegistryError
            It refuses, cannot be reached, or wants to be asked later than `timeout` from now.
        """
        failures: dict[str, SchemaRegistryError] = {}
        for attempt in range(self._retries + 1):
            if attempt:
                wanted = max(each.retry_after or 0.0 for each in failures.values())
                if wanted > self._timeout:
                    break
                time.sleep(max(wanted, _back_off_seconds(self._retry_backoff_ms, attempt)))
            first = self._first
            for number in range(len(self._urls)):
                place = (first + number) % len(self._urls)
                url = self._urls[place]
                headers = {**self._headers, **self._authorization(), **(BODY_HEADERS if body else {})}
                answer = self._send(method, url + path, headers, body)
                if answer.status == UNAUTHORIZED and self._has_tokens:  # it may have expired on the way
                    headers |= self._authorization()
                    answer = self._send(method, url + path, headers, body)
                named = f"{method} {path} of the schema registry {without_login(url)}"
                shown = partial(shown_without, credentials_in(headers))
                fault = _fault(named, answer, shown)
                if fault is None:
                    self._first = place
                    return _parsed(path, answer.body, shown)
                if not fault.retriable:
                    raise fault
                failures[url] = fault
        first_fault = next(iter(failures.values()))
        if len(failures) == 1:
            raise first_fault
        raise SchemaRegistryError(
            "; ".join(map(str, failures.values())),
            status=first_fault.status,
            error_code=first_fault.error_code,
            retriable=True,
            retry_after=max(each.retry_after or 0.0 for each in failures.values()) or None,
        )


# Requests


def _urls_of(given: str | Sequence[str]) -> tuple[list[str], tuple[str, str] | None]:
    """Return the URLs without a login, and the login of the first that has one."""
    urls, login = [], None
    for each in given.split(",") if isinstance(given, str) else given:
        url = each.strip().rstrip("/")
        try:
            parts = urlsplit(url)
            is_valid = parts.scheme.lower() in ("http", "https") and bool(parts.hostname)
        except ValueError:
            is_valid = False
        if not is_valid or parts.query or parts.fragment:
            raise ConfigError(
                f"url must be http:// or https:// with a host and without a query, got {without_login(url)}"
            )
        if parts.username is not None:
            login = login or (unquote(parts.username), unquote(parts.password or ""))
        urls.append(parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl())
    if not urls:
        raise ConfigError("url must name a schema registry, got none")
    return urls, login


def _authorization(
    basic_auth: tuple[str, str] | str | None, bearer_token: str | Callable[[], str] | None
) -> Callable[[], dict[str, str]]:
    """Return a function that makes the header of a request with which the client proves itself."""
    if callable(bearer_token):
        make = bearer_token
        return lambda: {"Authorization": f"Bearer {make()}"}
    if bearer_token is not None:
        return lambda: {"Authorization": f"Bearer {bearer_token}"}
    if basic_auth is None:
        return dict
    pair = basic_auth if isinstance(basic_auth, str) else ":".join(basic_auth)
    if ":" not in pair:
        raise ConfigError("basic_auth must be (user, password) or 'user:password'; the given text has no ':'")
    value = f"Basic {b64encode(pair.encode()).decode()}"
    return lambda: {"Authorization": value}


def _context(
    ca: str | None, certificate: str | None, key: str | None, password: str | None
) -> ssl.SSLContext:
    if certificate is None and (key is not None or password is not None):
        raise ConfigError("ssl_key_location and ssl_key_password need ssl_certificate_location; set it")
    try:
        is_folder = ca is not None and Path(ca).is_dir()
        context = (
            ssl.create_default_context(capath=ca) if is_folder else ssl.create_default_context(cafile=ca)
        )
    except (OSError, ValueError) as error:
        raise ConfigError(f"ssl_ca_location={ca!r} cannot be used: {error}; it must be PEM") from None
    if certificate is not None:
        try:
            context.load_cert_chain(certificate, key, password or "")
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"ssl_certificate_location={certificate!r} and its key cannot be used: {error}"
            ) from None
    return context


def _given(context: ssl.SSLContext | None) -> ssl.SSLContext:
    assert context is not None  # a URL with https has one
    return context


def _with_query(path: str, query: Mapping[str, str | None]) -> str:
    given = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def _of_subject(path: str, subject: str | None) -> str:
    return path if subject is None else f"{path}/{quote(subject, safe='')}"


def _body(schema: str, schema_type: str, references: Iterable[SchemaReference]) -> bytes:
    if schema_type not in SCHEMA_TYPES:
        raise ValueError(f"schema_type must be one of {', '.join(SCHEMA_TYPES)}, got {schema_type!r}")
    fields: dict[str, Any] = {"schema": schema, "schemaType": schema_type}
    if listed := [
        {"name": each.name, "subject": each.subject, "version": each.version} for each in references
    ]:
        fields["references"] = listed
    return json.dumps(fields).encode()


# Answers


def _fault(
    request: str, answer: HttpAnswer, shown: Callable[[str | bytes], str]
) -> SchemaRegistryError | None:
    """Return what is wrong with an answer, with its words as `shown`; None if it is a success."""
    if answer.failure is not None:
        return SchemaRegistryError(f"{request} failed: {answer.failure}", retriable=True)
    if answer.distrust is not None:
        return SchemaRegistryError(
            f"{request} failed: its certificate was refused: {answer.distrust}; set ssl_ca_location to the "
            "certificates of its authority"
        )
    if 200 <= answer.status < 300:
        if len(answer.body) > MAX_SCHEMA_BYTES:
            return SchemaRegistryError(f"{request} was answered with more than {MAX_SCHEMA_BYTES} bytes")
        return None
    if 300 <= answer.status < 400:
        text = f"{request} was answered {answer.status}, a redirect, which is not followed; set the final URL"
        return SchemaRegistryError(text, status=answer.status)
    code, words = None, shown(answer.body)
    try:
        fields = json.loads(answer.body)
        if isinstance(fields, dict) and isinstance(fields.get("message"), str):
            code, words = fields.get("error_code"), shown(fields["message"])
    except (ValueError, RecursionError):
        pass
    code = code if isinstance(code, int) and code != answer.status else None
    said = " ".join(str(each) for each in (code, words) if each)
    return SchemaRegistryError(
        f"{request} was answered {answer.status}: {said or 'without a reason'}",
        status=answer.status,
        error_code=code,
        retriable=answer.status in (408, 429) or answer.status >= 500,
        retry_after=answer.retry_after,
    )


def _back_off_seconds(first_ms: int, attempt: int) -> float:
    return backoff_ns(first_ms * 10**6, MAX_BACKOFF_MS * 10**6, attempt - 1, random.random()) / 1e9


def _parsed(path: str, body: bytes, shown: Callable[[str | bytes], str]) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise _unsuitable(path, "JSON", shown(body)) from None


def _checked(path: str, found: Any, kind: type[_Value], wanted: str) -> _Value:
    if not isinstance(found, kind) or isinstance(found, bool):
        raise _unsuitable(path, wanted, shown(json.dumps(found)))
    return found


def _unsuitable(path: str, wanted: str, found: object) -> SchemaRegistryError:
    return SchemaRegistryError(
        f"{path} was answered without {wanted}: {found}; check that the URL is that of a schema registry"
    )


def _names(fields: Mapping[str, Any]) -> str:
    """Return which fields an answer has. Their values may repeat the request, which has credentials."""
    return f"{{{shown(', '.join(fields))}}}"


def _integer(path: str, fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _unsuitable(path, f"a whole number {name!r}", _names(fields))
    return value


def _schema_of(
    path: str, fields: Mapping[str, Any], id: int | None = None, guid: str | None = None
) -> Schema:
    """Return the schema of an answer. `id` and `guid` are those that were asked for."""
    text, schema_type = fields.get("schema"), fields.get("schemaType") or "AVRO"
    listed = fields.get("references") or []
    try:
        references = tuple(
            SchemaReference(str(r["name"]), str(r["subject"]), int(r["version"])) for r in listed
        )
    except (TypeError, KeyError, ValueError):
        raise _unsuitable(path, "valid references", f"references of type {type(listed).__name__}") from None
    if not isinstance(text, str) or not isinstance(schema_type, str):
        raise _unsuitable(path, "a schema", _names(fields))
    if id is None and "id" in fields:
        id = _integer(path, fields, "id")
    version = _integer(path, fields, "version") if "version" in fields else None
    return Schema(
        text, schema_type, references, id, guid or fields.get("guid"), fields.get("subject"), version
    )


# What is known


class _Ask(Generic[_Value]):
    """A question that a thread has asked, and others wait for."""

    def __init__(self) -> None:
        self.is_done = NativeEvent()
        self.answer: _Value | None = None
        self.error: SchemaRegistryError | None = None


class _Once(Generic[_Value]):
    """Answers by their questions; each is asked once, whichever threads want it. None is no answer."""

    def __init__(self, missing_seconds: float, size: int) -> None:
        self._missing_seconds = missing_seconds
        self._size = size
        self._lock = real_threading().Lock()
        self._known: dict[Hashable, _Value] = {}  # that which was used last is the last
        self._missing: dict[Hashable, tuple[float, SchemaRegistryError]] = {}
        self._asked: dict[Hashable, _Ask[_Value]] = {}

    def __call__(self, question: Hashable, ask: Callable[[], _Value]) -> _Value:
        while True:
            with self._lock:
                if question in self._known:
                    known = self._known[question] = self._known.pop(question)
                    return known
                until, error = self._missing.get(question, (0.0, None))
                if error is not None and time.monotonic() < until:
                    raise copy.copy(error)
                asked = self._asked.get(question)
                if asked is None:
                    asked = self._asked[question] = _Ask()
                    break
            asked.is_done.wait()
            if asked.error is not None:
                raise copy.copy(asked.error)
            # known now, or its thread was interrupted: then this one asks
        try:
            asked.answer = ask()
        except SchemaRegistryError as error:
            asked.error = error
            raise
        finally:
            self._settle(question, asked)
        return asked.answer

    def forget(self, is_old: Callable[[Hashable], bool]) -> None:
        """Drop answers to some questions, also that nothing is known."""
        with self._lock:
            for answers in (self._known, self._missing):
                for question in list(filter(is_old, answers)):
                    del answers[question]

    def _settle(self, question: Hashable, asked: _Ask[_Value]) -> None:
        with self._lock:
            del self._asked[question]
            if asked.answer is not None:
                self._known[question] = asked.answer
                if len(self._known) > self._size:
                    del self._known[next(iter(self._known))]
            elif asked.error is not None and asked.error.status == NOT_FOUND:
                if len(self._missing) >= MAX_MISSING:
                    self._missing.clear()
                self._missing[question] = (time.monotonic() + self._missing_seconds, asked.error)
        asked.is_done.set()


class _Patience:
    """Repeats a request for an id that is unknown, for some seconds, and for one thread at a time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._turn = real_threading().Lock()
        self._period_end = 0.0
        self._left = 0.0

    def __call__(self, ask: Callable[[], _Value]) -> _Value:
        try:
            return ask()
        except SchemaRegistryError as error:
            fault = error
        if fault.error_code != UNKNOWN_SCHEMA or not self._turn.acquire(blocking=False):
            raise fault
        begin = time.monotonic()
        if begin >= self._period_end:
            self._period_end, self._left = begin + PATIENCE_PERIOD, PATIENT_SECONDS
        try:
            return self._repeated(ask, fault, begin + min(self._seconds, self._left))
        finally:
            self._left -= time.monotonic() - begin
            self._turn.release()

    def _repeated(self, ask: Callable[[], _Value], fault: SchemaRegistryError, end: float) -> _Value:
        for attempt in count(1):
            wait = _back_off_seconds(100, attempt)
            if time.monotonic() + wait > end:
                raise fault
            time.sleep(wait)
            try:
                return ask()
            except SchemaRegistryError as error:
                if error.error_code != UNKNOWN_SCHEMA:
                    raise
                fault = error
        raise AssertionError
