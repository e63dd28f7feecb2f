"""The tree in levels: which module may import which, and the purpose of each folder.

LAYERS is the one place that says so. `python -m tests.layers` writes the table of ARCHITECTURE.md from it.
tests/integration/test_layers.py checks the imports of every .py, .pyx and .pxd file against it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import groupby, product
from pathlib import Path
from typing import NamedTuple

from tests import ROOT

PAGE = ROOT / "ARCHITECTURE.md"


class Layer(NamedTuple):
    """A folder, or a file, of the tree.

    Attributes
    ----------
    level : int
        Its modules import modules of lower levels, and each other.
    where : str
        Below kbatch/; src_c and tests/ are beside it.
    what : str
        What it is for.
    parts : mapping of str to str
        Names of files, separated by spaces, and what they are for. Those left out explain themselves.
    """

    level: int
    where: str
    what: str
    parts: Mapping[str, str] = {}


LAYERS = (
    Layer(
        0,
        "src_c",
        "C without Python.h; appending allocates nothing",
        {
            "varint.h": "**where a varint of a record is written and read**: zigzag, size, put, bounded get",
            "batch_queue.h node_queues.h sequences.h": "the states of a batch and the order of a queue; "
            "queues by node; **which batch may follow which**",
            "wire.h produce_wire.h fetch_wire.h": "values of the protocol; Produce requests and usual "
            "answers; Fetch requests and their answers",
            "fetch_road.h fetch_link.h road_poll.h arrivals.h fetch_budget.h": "**how usual Fetches are sent "
            "and answered without the GIL**: which partitions, sessions, positions; without and with "
            "sockets; what the program is handed; the memory of answers",
            "bytes.h record.h record_batch.h": "big-endian loads and stores; one record, written and read; "
            "the 61-byte header, Kafka's closing rule and ratio rule",
            "lane.h lane_poll.h lent.h alarm.h sensor.h": "**how usual batches are sent without the GIL**, "
            "without and with sockets; requests of lane and road that the engine takes back; when the sender "
            "looks next; the windows of a measured value",
            "crc32c.h murmur2.h random.h pages.h short_lock.h flags.h descriptor.h": "CRC-32C, chosen at run "
            "time; Java's key hash; seeded random numbers; huge pages; short locks; flags without locks; "
            "system calls that never wait",
            "arrow_c_abi.h arrow_columns.h record_columns.h fetched.h": "the Arrow C interfaces; columns as "
            "spans; records appended to Arrow buffers; **which fetched batches a reader may see**",
            "rows.h row_chain.h row_runs.h chunk_chain.h": "rows grouped by partition and appended; batches "
            "as chains of chunks; the offsets of a table's rows",
            "codec_ids.h codec_libraries.h codec_levels.h codec_sink.h snappy.h zstd_frames.h": "ids of "
            "codecs; **codecs by their C libraries, without Python**; their levels; bounded output; "
            "snappy blocks; where zstd frames end",
        },
    ),
    Layer(
        1,
        "errors/",
        "the exception tree, a class for each of Kafka's error codes; makes docs/errors.md",
    ),
    Layer(1, "codecs", "**the codecs of record batches**, as a table: names, ids, levels"),
    Layer(1, "timeouts", "which time limits calls accept"),
    Layer(1, "version", "the version number"),
    Layer(1, "distribution", "**what `pip` calls kbatch**, and the other project of its name"),
    Layer(
        1, "unpatched", "real threads, locks and selectors, also where gevent or eventlet has patched them"
    ),
    Layer(1, "_native/lock", "short locks, for Cython; **those that fork() waits for**"),
    Layer(1, "_native/flags", "flags and counts that threads share without a lock, for Cython"),
    Layer(
        2,
        "_native/codec/",
        "record batches as bytes",
        {
            "c codecs views memory": "declarations of `src_c`; buffers of bytes; growing native memory, "
            "blocks kept for reuse",
            "compression libraries packages": "the door of codecs; **bytes compressed without the GIL**; the "
            "packages, imported at first use, where their libraries cannot be called",
            "hashes estimator record record_fields record_batch batch_writer": "crc32c and murmur2; the "
            "compression ratio of a topic; Record, ConsumerRecord; fields as spans; reading (RecordBatch, "
            "`decode`, `rebase`); writing (RecordBatchWriter, `encode`)",
        },
    ),
    Layer(
        2,
        "_native/io/",
        "I/O primitives that need no records",
        {
            "sockets waker": "reads and small writes that keep the GIL; what wakes the sender's thread",
            "interrupts threads": "operations that a signal handler must not interrupt; **how a thread "
            "waits, also beside greenlets**; the threads of clients",
            "sensor lent backoff": "sensors of metrics; what is taken back after a loan; waits that double",
            "sole_user": "who may use a consumer, one thread or task at a time",
        },
    ),
    Layer(
        2,
        "_native/protocol/",
        "messages of the protocol",
        {"message_reader": "**the values of messages**, read step by step"},
    ),
    Layer(
        3,
        "_native/arrow/",
        "Arrow columns in, record batches out, and back",
        {
            "arrow table_columns": "columns by PyCapsule; columns as rows of spans",
            "table_encoder table_decoder record_chunks regions": "**how a table becomes batches**; batches "
            "into column buffers",
            "row_hashes": "hashes of key columns; the digest of rows in any order",
        },
    ),
    Layer(
        3,
        "_native/batch/",
        "a producer's batch, from its memory to its outcome",
        {
            "buffer_pool": "`buffer.memory`: the budget of all accepted records, and **who waits for "
            "memory**",
            "alarm delivery_queue": "**when the sender looks next, and who wakes it**; what wakes the thread "
            "of callbacks",
            "producer_batch": "a batch: its bytes, its state, its partition's queue, smaller batches out of "
            "one that is too large",
            "delivery": "**what becomes of a batch**: its Completion, the deliveries of its records; Flush, "
            "for several batches",
        },
    ),
    Layer(3, "progress", "**progress bars** of terminals and notebooks"),
    Layer(3, "logs", "**how clients log**: lines of their own threads, by a thread that may wait"),
    Layer(3, "http_client", "bounded requests over HTTP: tokens, schemas"),
    Layer(
        4,
        "_native/send/",
        "records into batches, batches to the sender",
        {
            "send": "RecordSender: what `send()` does with every record before it waits",
            "accumulator": "**where a record gets into a batch**, and which batches the sender gets: ready, "
            "drain, expire",
            "sticky cluster_view": "where records without a key go; who leads which partition",
            "in_flight produce_wire lane": "batches in flight and their sequences; the engine's Produce "
            "requests; **the way of batches without the GIL**",
            "sealing": "**which thread compresses a batch**: SealPolicy decides, SealQueue hands it over",
            "table_sender table_topics": "**how a table gets into batches**; the topics that rows name",
        },
    ),
    Layer(4, "typed", "which types keys and values have, for type checkers"),
    Layer(4, "schema_registry", "schemas by id, subject and version, from Confluent's REST API"),
    Layer(
        4,
        "_native/fetch/",
        "what was fetched, from the answer to the program",
        {
            "road reading": "**what a Fetch asks, and what its answer means**; what is read, and from "
            "which node",
            "budget frames fetch_answer": "memory of answers; an answer in one step",
            "fetched_batches fetched releases": "**the records of a partition, as columns or objects**; "
            "their part of an answer's memory; how it is given back",
            "arrivals": "what the network has delivered without the GIL and the program has not looked at",
            "fetch_buffer read_cursor": "**what was fetched and not yet taken**; how an iteration takes "
            "records one by one",
            "quick_polls": "**polls that have nothing to look at but records**, in one native step",
        },
    ),
    Layer(
        5,
        "config/",
        "the table of configuration keys and their rules; other clients' keys, JAAS lines and .properties "
        "files; makes docs/configuration.md, and **the types of keywords**",
    ),
    Layer(5, "metrics/", "the table of metrics; makes docs/metrics.md"),
    Layer(5, "records", "TopicPartition, OffsetAndMetadata and their like"),
    Layer(
        5,
        "formats/",
        "**one object for keys and values**, of records and tables, both ways",
        {
            "base plain json_format json_schema avro protobuf": "the base; a module for each kind",
            "configured callables poison": "serializers and deserializers as they are configured; others' "
            "functions and objects; **what becomes of a record that cannot be read**",
            "avro_schemas model_schemas protobuf_files": "schemas of Avro; those of a program's classes; "
            "files of messages",
            "avro_records protobuf_records parsed_json models": "**single values**: Avro, Protobuf, JSON; "
            "objects of classes as dicts, and back",
            "registered schemas framing strategies": "values that name their schema; those of a registry; "
            "**Confluent's wire format**; the subject of a topic",
            "writing reading": "columns as bytes, and back: a module for each kind",
        },
    ),
    Layer(5, "renamed", "names that have moved: `serializers`, `column_serializers`, `column_deserializers`"),
    Layer(
        5,
        "protocol/",
        "**messages as bytes and back**",
        {
            "schema structs": "the notation of `tables/`, and the classes made from it",
            "codec readers writers": "the entry; the steps of readers; generated writers; both explain every "
            "error",
            "features": "**from which version on a request can do what**",
        },
    ),
    Layer(
        5,
        "waiting/",
        "**how a caller waits**",
        {
            "threads event_loop": "the waiters of a thread and of a task",
            "protocols deadline conditions methods": "the protocol of waiters; time limits; conditions and "
            "events; **plain methods out of coroutines**",
        },
    ),
    Layer(
        6,
        "sasl/",
        "**how a client proves who it is**: each mechanism of SASL; tokens, and where they come from",
    ),
    Layer(6, "serializers", "old names"),
    Layer(6, "column_serializers", "old names"),
    Layer(6, "column_deserializers", "old names"),
    Layer(6, "partitioner", "partitioners by name"),
    Layer(6, "interceptors", "the chain of interceptors"),
    Layer(6, "prometheus", "metrics as Prometheus reads them"),
    Layer(6, "telemetry", "**metrics as brokers that collect them read them**: OTLP (KIP-714)"),
    Layer(
        6,
        "codec/",
        "`columns`: `encode_arrow`, `decode_arrow`; `roles`: **which column becomes what**; `segments`: "
        "Kafka's log segments",
    ),
    Layer(
        6,
        "core/client/",
        "what every client knows, without sockets, threads or clocks",
        {
            "engine actions": "a client that knows nothing of records: events in (`handle_*`, `run`), "
            "actions out",
            "connections connection node_state api_versions authentication": "all connections; one, with its "
            "requests; the states of a node, as a table; versions; the login",
            "cluster controllers coordinators": "topics, leaders, nodes, and when metadata is due; "
            "controllers instead of brokers; coordinators of groups and transactional.ids",
            "outcomes": "what follows from each error code of an answer: the form of such tables",
            "telemetry": "when metrics are pushed to brokers, and what their refusals mean (KIP-714)",
            "any_node_request admin_requests routes calls backoff lasting_faults connection_metrics": "a "
            "request that any node can answer; **calls about items, and what is repeated of them**; which "
            "node gets an item; calls of users; waits that double; **which lines faults that last get**; "
            "metrics of connections",
        },
    ),
    Layer(7, "tracing", "interceptors for OpenTelemetry"),
    Layer(8, "instrumentation", "the same for all clients of a program"),
    Layer(
        7,
        "core/admin/",
        "requests of administrators: `names` and `results`, and a module a subject",
    ),
    Layer(
        8,
        "core/consumer/",
        "a client that reads partitions, without sockets, threads or clocks",
        {
            "engine results calls": "the entry; its results; calls about topics and offsets",
            "fetcher fetch_session budget": "**where partitions are read from, and what unusual answers "
            "mean**; sessions; a poll that waits for rows",
            "outcomes": "**where a retry is decided**: what follows from each error code, a table a request",
            "distances": "**how far the program is from the ends of logs**, for `lag` and metrics",
            "positions partition_state leader_requests": "where reading goes on if the log does not have a "
            "position; the states of a partition, as a table; ListOffsets, OffsetForLeaderEpoch",
            "pattern_topics": "the topics that a pattern matches",
            "member_engine group_engine membership consumer_membership classic_membership heartbeats "
            "member_state commits share_engine share_membership share_fetcher share_session": "**what a "
            "member does next**, by KIP-848, by the classic protocol, and in a share group (KIP-932); in "
            "`member_engine` **when it leaves because its program does not poll**; heartbeats; commits",
            "assignors java_order consumer_protocol": "**which member gets which partitions** in a classic "
            "group, as Java decides it; the bytes that members exchange",
        },
    ),
    Layer(
        8,
        "core/process/",
        "what `process()` decides, without threads or clocks",
        {
            "scheduler retry": "**which record runs next**, and what follows from its outcome; when it is "
            "tried again",
            "progress finished_runs": "**what is committed**: the first offset that is not finished, and "
            "what is finished after it, as text",
        },
    ),
    Layer(
        8,
        "core/producer/",
        "the producer without sockets, threads or clocks",
        {
            "engine": "the entry: a client's engine, and completions out",
            "sender produce_attempt actions": "batches to brokers, answers to batches",
            "outcomes": "**where a retry is decided**: what follows from each error code, a table a request",
            "idempotence": "sequences, and what an answer to one batch says about the others",
            "transactions transactional_sequences transaction_states transaction_requests": "calls and "
            "operations; sequences in a transaction; the states of transactions, as a table; their requests",
        },
    ),
    Layer(
        8,
        "testing/broker/",
        "the embedded broker; imports nothing of the producer",
        {
            "core broker_state server broker": "a request in, an answer out, without sockets; what handlers "
            "share; the sockets; the entry",
            "api": "the handlers of requests, one family of APIs per file",
            "coordinators shards groups transactions": "**who coordinates a group or a transaction**; what "
            "it has loaded from a partition of an internal topic",
            "share": "which records a share group gets, and who has them",
            "cluster logs security": "nodes, topics, replicas; a log: its producers and checks of batches; "
            "listeners, logins, ACLs",
            "controller replication": "**who leads, and who is in sync**; what followers fetch, and the high "
            "watermark",
            "outages purgatory": "nodes and networks that fail; requests that wait",
        },
    ),
    Layer(
        9,
        "network/",
        "the owners of an engine: sockets, the clock, threads",
        {
            "rounds driver runtime": "**how a round drives an engine**, in real or virtual time; what owners "
            "of sockets add; what the calls of a client share, and `await_until`, **by which all of them "
            "wait**",
            "threads channels event_loop transports": "the sender's thread and its sockets; an asyncio event "
            "loop and its transports",
            "tls tls_context": "**what a TLS error means, when certificates are read**; the ssl keys as a "
            "context",
            "callbacks event_loop_callbacks": "where `on_delivery` runs",
            "workers sealing decoding login": "threads for host names; threads that seal batches; threads "
            "that decode records; the thread that makes tokens of SASL",
        },
    ),
    Layer(
        10,
        "admin/",
        "Admin and AsyncAdmin (`threads`, `event_loop`); their parts, a module a subject",
    ),
    Layer(
        11,
        "producer/",
        "Producer (`threads`) and AsyncProducer (`event_loop`)",
        {
            "base coroutines configured": "what both do: send, flush, close; the methods of tasks",
            "runtime memory_queue deliveries": "what the calls share; the queue for memory; `wait`, "
            "`as_completed`, `await delivery`",
            "tables transactions groups": "the parts: `send_table`; transactions; requests about groups",
        },
    ),
    Layer(
        11,
        "consumer/",
        "Consumer and ShareConsumer (`threads`), their like on event loops (`event_loop`), what both do "
        "(`base`, `share`), and how they begin and end (`lifetime`); topics as tables and streams "
        "(`reading`), ranges (`topic_reader`); `backlog`, `range_buffer`, `acquired`: **what is unusual in "
        "what was fetched**, for consumers and reads, and what is acquired; `fetch_columns`: columns of it; "
        "`typed_records`, `schema_question`: **records of a program's types**, and what a registry is asked "
        "before; "
        "`group_member`: **when callbacks of a rebalance run, and what is committed**; `process`: "
        "`process()` and its workers",
    ),
    Layer(
        12,
        "spark/",
        "Spark's formats and functions; pyspark is imported here only",
        {
            "arrow_functions column_functions schemas": "encoder and decoder; UDFs; the shapes of rows",
            "data_source sink sink_stream source source_stream failed_stream kept_readers": "the format "
            "`kbatch`: writers, readers",
            "kafka_options java_patterns versions": "options `kafka.*`; patterns as Java reads them; the "
            "pyspark that is needed",
            "sink_options sink_columns sink_formats sink_jobs sink_rows": "what the driver checks; **which "
            "bytes columns become**; tasks and their rows",
            "source_options source_columns source_formats source_offsets source_sizes exactly_once": "**"
            "which offsets a task reads**, as which columns, how many bytes; **a transaction a task attempt, "
            "and the marker by which a replay is known**",
            "segments segment_store committed": "the format `kbatch-segments`",
        },
    ),
    Layer(12, "bench/", "kbatch beside other clients, each in its own process, in turns: `kbatch bench`"),
    Layer(
        12,
        "compat/",
        "**names of confluent-kafka over the clients here**: `settings`: its keys; `error`: its codes; "
        "`producer`: callbacks in `poll`; `consumer`: errors as messages, offsets that are stored",
    ),
    Layer(13, "testing/", "`kbatch.testing`: Broker, the pytest fixture"),
    Layer(14, "cli/", "the `kbatch` command, a module a subcommand"),
    Layer(15, "__init__", "public names only"),
    Layer(15, "__main__", "the command as `python -m kbatch`"),
    Layer(
        16,
        "tests/simulation/world/",
        "**what worlds of the simulator are made of**: virtual time, a network, brokers, their faults; in "
        "`replicas` **what replicated ones have more**, and the checks of their logs",
    ),
    Layer(17, "tests/simulation/producers/", "worlds of one producer, and the checks of its promises"),
    Layer(17, "tests/simulation/readers/", "worlds of a consumer group, and theirs"),
    Layer(17, "tests/simulation/process/", "worlds of `process()`, and theirs"),
    Layer(18, "tests/simulation/transactions/", "worlds of programs with transactions, and theirs"),
    Layer(19, "tests/simulation/planted/", "bugs that worlds must detect"),
    Layer(
        20,
        "tests/simulation/",
        "`worlds`: **the world of a seed**; campaigns of worlds; the hunt for planted bugs",
    ),
)
ROOTS = ("kbatch", "tests/simulation")  # folders of the modules that have layers


# Imports


@cache
def modules() -> dict[str, list[Path]]:
    """Return the files of each module that has a layer: a .py file, or a .pyx and a .pxd file."""
    found: dict[str, list[Path]] = {}
    for root, suffix in product(ROOTS, ("*.py", "*.pyx", "*.pxd")):
        for path in sorted((ROOT / root).rglob(suffix)):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            found.setdefault(name, []).append(path)
    return found


CYTHON = re.compile(r"(?m)^\s*(?:from (kbatch[\w.]*) c?import (\([^)]*\)|.*)|c?import (kbatch[\w.]*))")


def statements(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each import of kbatch in a file, anywhere in it: the module, and the names taken from it."""
    if path.suffix != ".py":
        for module, names, whole in CYTHON.findall(path.read_text()):
            yield module or whole, re.findall(r"(\w+)(?: as \w+)?", re.sub("#.*", "", names))
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)


@cache
def imports_of(module: str) -> frozenset[str]:
    """Return the modules of ours that a module imports or cimports, for types and in functions too."""
    found = set()
    for path in modules()[module]:
        for base, names in statements(path):
            found |= {f"{base}.{name}" if f"{base}.{name}" in modules() else base for name in names or [""]}
    return frozenset(name for name in found if name.split(".")[0] in ("kbatch", "tests")) - {module}


def layer_of(module: str) -> Layer:
    """Return the layer with the longest name that the module is in. LookupError for a module without one."""
    path = module.removeprefix("kbatch").lstrip(".").replace(".", "/") or "__init__"
    found = [layer for layer in LAYERS if f"{path}/".startswith(layer.where.rstrip("/") + "/")]
    if not found:
        raise LookupError(f"{module} has no layer in tests/layers.py")
    return max(found, key=lambda layer: len(layer.where))


def circles() -> set[frozenset[str]]:
    """Return each set of modules of which every one imports every other, directly or not."""
    reached = {module: _reached(module) for module in modules()}
    return {
        frozenset(each for each in reached[module] if module in reached[each])
        for module in modules()
        if module in reached[module]
    }


def _reached(module: str) -> set[str]:
    found: set[str] = set()
    waiting = [module]
    while waiting:
        new = imports_of(waiting.pop()) & modules().keys() - found
        found |= new
        waiting += new
    return found


# The table of ARCHITECTURE.md

HEAD = "| level | where | what |\n|---|---|---|\n"


def table() -> str:
    """Return the table of the tree, with its head."""
    return HEAD + "".join(_rows())


def _rows() -> Iterator[str]:
    """Yield a row for each folder and group of its parts, and one for the single files of each level."""
    shown = None
    for (level, is_folder), group in groupby(LAYERS, lambda layer: (layer.level, "/" in layer.where)):
        layers = list(group)
        for same in [[layer] for layer in layers] if is_folder else [layers]:
            where = ", ".join(f"`{path_of(layer)}`" for layer in same)
            what = "; ".join(layer.what for layer in same)
            yield f"| {f'L{level}' if level != shown else ''} | {where} | {what} |\n"
            shown = level
            for names, what in same[0].parts.items():
                yield f"| | {', '.join(f'`{name}`' for name in names.split())} | {what} |\n"


def path_of(layer: Layer) -> str:
    """Return the path from the root of the tree."""
    if layer.level == 0 or layer.where.startswith("tests/"):
        return layer.where
    if layer.where.endswith("/"):
        return f"kbatch/{layer.where}"
    return f"kbatch/{layer.where}" + (".pxd" if "/" in layer.where else ".py")


def with_table(page: str) -> str:
    """Return the page with the table as it should be."""
    begin = page.index(HEAD)
    return page[:begin] + table() + page[page.index("\n\n", begin) + 1 :]


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
