"""SchemaRegistry against a registry on loopback."""

from __future__ import annotations

import pickle
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import kbatch
from kbatch.errors import ConfigError, SchemaRegistryError
from kbatch.http_client import HttpAnswer, retry_after
from kbatch.schema_registry import Schema, SchemaReference, SchemaRegistry
from tests.oracle.kafka import free_ports
from tests.support.certificates import Files, needs_openssl
from tests.support.patience import HANG_SECONDS
from tests.support.registry import DROP, HOST, Registry

TEXT = '"string"'
THREADS = 8


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as running:
        yield running


def test_F_REG_15_schemas_are_found_by_id_version_and_guid(registry: Registry) -> None:
    number = registry.add("orders-value", TEXT)
    client = registry.client()
    guid = str(registry.guid(number))
    assert client.get(number) == Schema(TEXT, "AVRO", (), number, guid)
    assert client.get_by_guid(guid) == Schema(TEXT, "AVRO", (), None, guid)
    found = Schema(TEXT, "AVRO", (), number, guid, "orders-value", 1)
    assert client.get_version("orders-value") == client.get_version("orders-value", 1) == found
    assert client.lookup("orders-value", TEXT) == found
    assert kbatch.SchemaRegistry is SchemaRegistry


def test_names_of_subjects_may_have_any_letters(registry: Registry) -> None:
    registry.add("a/b ü?x=1", TEXT)
    assert registry.client().get_version("a/b ü?x=1").text == TEXT


def test_registering_returns_the_id_and_keeps_it(registry: Registry) -> None:
    client = registry.client()
    first = client.register("a-value", TEXT)
    assert client.register("b-value", TEXT) == first != client.register("b-value", '"long"', "AVRO")
    assert client.register("b-value", TEXT) == first
    assert len(registry.requests) == 3
    referring = client.register("c", "message X {}", "PROTOBUF", [SchemaReference("a.proto", "a-value", 1)])
    found = client.get(referring)
    assert found.schema_type == "PROTOBUF" and found.references == (SchemaReference("a.proto", "a-value", 1),)
    assert [each.text for each in client.with_references(found)] == [TEXT, "message X {}"]


def test_latest_version_is_requested_each_time(registry: Registry) -> None:
    registry.add("s", TEXT)
    client = registry.client()
    assert client.get_version("s").version == 1
    registry.add("s", '"long"')
    assert client.get_version("s").version == 2
    assert client.get_version("s", 1).text == TEXT and client.get_version("s", 1).text == TEXT
    assert len(registry.requests) == 3


# Once


def test_F_IO_03_threads_share_one_request_for_an_id(registry: Registry) -> None:
    number = registry.add("s", TEXT)
    client = registry.client()
    waiting = threading.Barrier(THREADS + 1)
    is_answered = threading.Event()
    registry.before = lambda path: is_answered.wait(HANG_SECONDS)

    def get() -> Schema:
        waiting.wait(HANG_SECONDS)
        return client.get(number)

    with ThreadPoolExecutor(THREADS) as pool:
        results = [pool.submit(get) for _ in range(THREADS)]
        waiting.wait(HANG_SECONDS)
        is_answered.set()
        assert {each.result(HANG_SECONDS).text for each in results} == {TEXT}
    assert registry.requests == [f"GET /schemas/ids/{number}"]
    client.get(number)
    assert len(registry.requests) == 1


def test_R92_unknown_id_is_requested_once(registry: Registry) -> None:
    client = registry.client()
    for _ in range(3):
        with pytest.raises(SchemaRegistryError, match=r"/schemas/ids/7 .* 404: 40403 Schema 7 not") as raised:
            client.get(7)
        assert (raised.value.status, raised.value.error_code, raised.value.retriable) == (404, 40403, False)
    assert len(registry.requests) == 1


def test_failed_request_is_not_remembered(registry: Registry) -> None:
    number = registry.add("s", TEXT)
    client = registry.client(retries=0)
    registry.faults.append((500, b'{"error_code": 50001, "message": "store"}'))
    with pytest.raises(SchemaRegistryError, match="500: 50001 store"):
        client.get(number)
    assert client.get(number).text == TEXT


def test_waiters_share_the_failure_of_a_request(registry: Registry) -> None:
    client = registry.client(retries=0)
    is_asked, is_answered = threading.Event(), threading.Event()

    def before(path: str) -> None:
        is_asked.set()
        is_answered.wait(HANG_SECONDS)

    registry.before = before
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(client.get, 7)
        assert is_asked.wait(HANG_SECONDS)
        second = pool.submit(client.get, 7)
        is_answered.set()
        errors = [first.exception(HANG_SECONDS), second.exception(HANG_SECONDS)]
    assert [type(each) for each in errors] == [SchemaRegistryError] * 2 and errors[0] is not errors[1]
    assert len(registry.requests) == 1


# Failures


@pytest.mark.parametrize("fault", [(500, b""), (503, b"busy"), (429, b""), (DROP, b"")])
def test_passing_failures_are_repeated(registry: Registry, fault: tuple[int, bytes]) -> None:
    number = registry.add("s", TEXT)
    registry.faults.extend([fault] * 3)
    assert registry.client().get(number).text == TEXT
    assert len(registry.requests) == 4


def test_repetitions_end(registry: Registry) -> None:
    registry.faults.extend([(503, b"busy")] * 9)
    with pytest.raises(
        SchemaRegistryError, match=r"GET /schemas/ids/1 .*'http.*' was answered 503: busy"
    ) as raised:
        registry.client(retries=2).get(1)
    assert raised.value.retriable and len(registry.requests) == 3


def test_F_REG_01_codes_say_what_is_unknown(registry: Registry) -> None:
    registry.add("known", TEXT)
    client = registry.client()
    asked: list[tuple[int, Callable[[], object]]] = [
        (40401, lambda: client.get_version("unknown")),
        (40402, lambda: client.get_version("known", 7)),
        (40403, lambda: client.get(7)),
    ]
    for code, ask in asked:
        with pytest.raises(SchemaRegistryError) as raised:
            ask()
        assert (raised.value.status, raised.value.error_code, raised.value.retriable) == (404, code, False)


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (401, b'{"error_code": 40101, "message": "Who?"}', "401: 40101 Who[?]"),
        (422, b"<html>no</html>", "422: <html>no</html>"),
        (404, b"", "404: without a reason"),
        (302, b"", "302, a redirect, which is not followed; set the final URL"),
        (200, b"[]", r"/schemas/ids/1 was answered without a JSON object: \[\]"),
        (200, b"{}", "answered without a schema: {}; check that the URL"),
        (200, b'{"schema": 5}', "answered without a schema"),
        (200, b'{"schema": "x", "references": [5]}', "answered without valid references"),
        (200, b'{"schema": "x", "version": "1"}', "answered without a whole number 'version'"),
    ],
)
def test_F_REG_02_other_answers_are_clear_errors(
    registry: Registry, status: int, body: bytes, text: str
) -> None:
    registry.faults.append((status, body))
    with pytest.raises(SchemaRegistryError, match=text) as raised:
        registry.client().get(1)
    assert not raised.value.retriable and len(registry.requests) == 1


def test_incompatible_schema_is_refused(registry: Registry) -> None:
    with pytest.raises(SchemaRegistryError, match="409: Schema being registered is incompatible"):
        registry.client().register("s", '{"type": "never"}')


def test_next_url_is_used_while_one_fails(registry: Registry) -> None:
    number = registry.add("s", TEXT)
    absent = f"http://{HOST}:{free_ports(1)[0]}"
    client = SchemaRegistry([absent, registry.url], retries=0)
    assert client.get(number).text == TEXT
    client = SchemaRegistry(f"{registry.url},{absent}", retries=0)
    registry.faults.append((500, b"broken"))
    with pytest.raises(SchemaRegistryError, match=r"500: broken; .* failed: .*refused"):
        client.get(number)
    assert client.get(number).text == TEXT


def test_unreachable_registry_is_named() -> None:
    url = f"http://{HOST}:{free_ports(1)[0]}"
    with pytest.raises(
        SchemaRegistryError, match=f"of the schema registry '{url}' failed: .*refused"
    ) as raised:
        SchemaRegistry(url, retries=1, retry_backoff_ms=0).get(1)
    assert raised.value.retriable and raised.value.status == 0


def test_slow_answer_is_a_failure(registry: Registry) -> None:
    is_over = threading.Event()
    registry.before = lambda path: is_over.wait(HANG_SECONDS)
    with pytest.raises(SchemaRegistryError, match=r"no answer in 0.1 s"):
        registry.client(timeout=0.1, retries=0).get(1)
    is_over.set()


# Credentials and TLS


def test_credentials_are_sent(registry: Registry) -> None:
    registry.add("s", TEXT)
    basic = f"Basic {b64encode(b'alice:s3:cret').decode()}"
    host = registry.url.removeprefix("http://")
    tokens = iter(["one", "two"])
    for expected, client in (
        (basic, registry.client(basic_auth=("alice", "s3:cret"))),
        (basic, registry.client(basic_auth="alice:s3:cret")),
        (basic, SchemaRegistry(f"http://alice:s3%3Acret@{host}")),
        ("Bearer abc", registry.client(bearer_token="abc", headers={"target-sr-cluster": "lsrc-1"})),
    ):
        registry.authorization = expected
        assert client.get_version("s").text == TEXT
        assert "s3" not in repr(client)
    assert registry.headers[-1]["target-sr-cluster"] == "lsrc-1"
    client = registry.client(bearer_token=lambda: next(tokens))
    for token in ("one", "two"):
        registry.authorization = f"Bearer {token}"
        assert client.get_version("s").text == TEXT
    registry.authorization = "Bearer other"
    with pytest.raises(SchemaRegistryError, match="401") as raised:
        registry.client(basic_auth="alice:s3cret").get_version("s")
    assert "s3cret" not in str(raised.value)


def test_F_REG_04_refused_token_is_asked_for_again_once(registry: Registry) -> None:
    registry.add("s", TEXT)
    tokens = iter(["expired", "new", "expired", "expired too", "never asked for"])
    client = registry.client(bearer_token=lambda: next(tokens))
    registry.authorization = "Bearer new"
    assert client.get_version("s").text == TEXT
    with pytest.raises(SchemaRegistryError, match="401") as raised:
        client.get_version("s")
    assert (raised.value.status, raised.value.retriable) == (401, False)
    assert next(tokens) == "never asked for"
    registry.requests.clear()
    with pytest.raises(SchemaRegistryError, match="401"):
        registry.client(bearer_token="expired").get_version("s")
    assert len(registry.requests) == 1


@pytest.mark.parametrize("status", [200, 401])
def test_credentials_that_the_registry_repeats_are_not_quoted(
    status: int, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = registry.client(basic_auth="alice:correct-horse")
    header = b64encode(b"alice:correct-horse")
    for body in (b"Basic " + header, b'{"message": "correct-horse", "schema": 5}'):
        monkeypatch.setattr(client, "_send", lambda *_, body=body: HttpAnswer(status, body))
        with pytest.raises(SchemaRegistryError) as raised:
            client.get_version("s")
        assert "horse" not in str(raised.value)
        assert header.decode() not in str(raised.value)


@needs_openssl
def test_certificates_are_checked(tmp_path: Path) -> None:
    files = Files(tmp_path)
    with Registry(files.server()) as registry:
        number = registry.add("s", TEXT)
        assert registry.client(ssl_ca_location=files.path("authority")).get(number).text == TEXT
        with pytest.raises(SchemaRegistryError, match=r"certificate was refused: .*; set ssl_ca_location"):
            registry.client().get(number)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"url": "localhost:8081"}, "url must be http:// or https:// with a host and without a query"),
        ({"url": []}, "url must name a schema registry"),
        ({"url": "http://u:s3cret@h?x=1"}, "got 'http://h'"),
        ({"basic_auth": "alice"}, "basic_auth must be"),
        ({"basic_auth": "a:b", "bearer_token": "c"}, "exclude each other"),
        ({"url": "http://a:b@h", "bearer_token": "c"}, "exclude each other"),
        ({"timeout": 0}, "timeout must be above 0"),
        ({"ssl_key_location": "key.pem"}, "need ssl_certificate_location"),
        ({"ssl_ca_location": "/nowhere/ca.pem"}, "ssl_ca_location='/nowhere/ca.pem' cannot be used"),
    ],
)
def test_invalid_parameters_are_refused(options: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as raised:
        SchemaRegistry(**({"url": "http://h"} | options))  # type: ignore[arg-type]
    assert "s3cret" not in str(raised.value)


def test_registry_goes_to_other_processes(registry: Registry) -> None:
    number = registry.add("s", TEXT)
    client = registry.client(basic_auth=("a", "b"))
    client.get(number)
    other = pickle.loads(pickle.dumps(client))
    assert other.get(number) == client.get(number) and len(registry.requests) == 2
    assert registry.headers[0]["authorization"] == registry.headers[1]["authorization"]


# What administrators do


def test_retry_after_is_waited_for(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("kbatch.schema_registry.time.sleep", slept.append)
    number = registry.add("s", TEXT)
    registry.retry_after = "7"
    registry.faults.extend([(429, b"{}"), (503, b"{}")])
    assert registry.client().get(number).text == TEXT
    assert slept == [7.0, 7.0]


def test_F_REG_03_retry_after_beyond_the_timeout_is_raised(registry: Registry) -> None:
    registry.retry_after = "3600"
    registry.faults.append((429, b'{"error_code": 42901, "message": "slow down"}'))
    with pytest.raises(SchemaRegistryError, match="429: 42901 slow down") as raised:
        registry.client().get(1)
    assert raised.value.retry_after == 3600 and raised.value.retriable
    assert len(registry.requests) == 1


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120),
        ("Thu, 01 Jan 1970 00:02:00 GMT", 20),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
        ("soon", None),
    ],
)
def test_retry_after_is_a_number_or_a_date(value: str, seconds: float | None) -> None:
    assert retry_after(value, 100.0) == seconds


def test_F_REG_09_id_that_a_replica_learns_is_found(registry: Registry) -> None:
    number = registry.add("s", TEXT)
    registry.faults.extend([(404, b'{"error_code": 40403, "message": "Schema not found"}')] * 2)
    assert registry.client(unknown_id_seconds=5).get(number).text == TEXT
    assert len(registry.requests) == 3


def test_F_REG_10_garbage_does_not_stall(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than 5 s of a minute are waited, however many ids are unknown."""
    now = [1000.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr("kbatch.schema_registry.time.sleep", sleep)
    monkeypatch.setattr("kbatch.schema_registry.time.monotonic", lambda: now[0])
    client = registry.client(unknown_id_seconds=5)
    for number in range(50, 70):
        with pytest.raises(SchemaRegistryError, match="40403"):
            client.get(number)
    assert now[0] - 1000 <= 5
    assert 20 < len(registry.requests) < 20 + 20


def test_F_REG_12_schemas_that_were_used_last_are_kept(registry: Registry) -> None:
    ids = [registry.add("s", f'"{kind}"') for kind in ("int", "long", "string")]
    client = registry.client(cache_size=2)
    for number in (ids[0], ids[1], ids[0], ids[2], ids[0]):
        client.get(number)
    assert len(registry.requests) == 3
    client.get(ids[1])
    assert len(registry.requests) == 4


def test_compatibility_says_why_not(registry: Registry) -> None:
    registry.add("s", TEXT)
    client = registry.client()
    assert client.incompatibilities("s", '"string"') == []
    assert client.incompatibilities("s", '"never"') == ["reader type: never"]
    with pytest.raises(SchemaRegistryError, match="40401"):
        client.incompatibilities("other", TEXT)


def test_deleted_subjects_are_forgotten(registry: Registry) -> None:
    client = registry.client()
    client.register("s", TEXT)
    client.register("s", '"long"')
    client.register("other", TEXT)
    assert client.subjects() == ["other", "s"]
    client.subjects("s", deleted=True)
    assert registry.requests[-1] == "GET /subjects?subjectPrefix=s&deleted=true"
    assert client.versions("s") == [1, 2]
    assert client.lookup("s", TEXT).version == 1
    assert client.delete_version("s", 2) == 2
    assert client.delete_subject("s") == [1]
    with pytest.raises(SchemaRegistryError, match="40403"):
        client.lookup("s", TEXT)
    with pytest.raises(SchemaRegistryError, match="40401"):
        client.get_version("s", 1)
    assert client.delete_subject("s", permanent=True) == [1]
    assert registry.requests[-2:] == ["DELETE /subjects/s", "DELETE /subjects/s?permanent=true"]
    assert client.subjects() == ["other"]


def test_configuration_and_mode(registry: Registry) -> None:
    client = registry.client()
    assert client.config()["compatibilityLevel"] == "BACKWARD"
    client.set_config("s", compatibility="FULL")
    assert client.config("s")["compatibilityLevel"] == "FULL"
    client.delete_config("s")
    assert client.config("s")["compatibilityLevel"] == "BACKWARD"
    assert client.mode() == "READWRITE"
    assert client.set_mode("READONLY", "s") == client.mode("s") == "READONLY"


@pytest.mark.parametrize("options", [{"cache_size": 0}, {"unknown_id_seconds": -1}])
def test_bounds_must_be_bounds(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="cache_size must be at least 1, unknown_id_seconds at least 0"):
        SchemaRegistry("http://localhost:1", **options)  # type: ignore[arg-type]
