"""How fast is a topic read, as tables and as records, beside the consumers of other clients?"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from uuid import uuid4

import kbatch
from benchmarks.clients import free_threads
from benchmarks.clients.contest import able, drivers_of
from benchmarks.clients.contestants import JAVA
from benchmarks.clients.readers import MASK, READERS, digest_of
from benchmarks.clients.work import table_of
from benchmarks.pages import summary
from benchmarks.pages.harness import Claim, Contender, Question
from benchmarks.pages.plan import Plan
from kbatch.bench.contest import Answer, ContestError
from kbatch.bench.settings import listed
from kbatch.bench.workload import batch_records

PARTITIONS = 4
RECORDS, ROUNDS = 2_000_000, 7
BATCH_BYTES = 128 << 10
# Rounds that do not count, as for throughput: Java's compiler needs two. In the first all records are hashed.
WARM_UP_ROUNDS = 2
TABLE, STREAM, OBJECTS = "kbatch read_table", "kbatch scan_topic", "kbatch records"
CONFLUENT, TUNED = "confluent-kafka", "confluent-kafka, tuned"
FREE = (*free_threads.both(TABLE), *free_threads.both(OBJECTS))
CLIENTS = (TABLE, STREAM, OBJECTS, *FREE, CONFLUENT, TUNED, "aiokafka", "kafka-python")
CODECS = ("none", "lz4")
# The most of warm Java's CPU a record, by codec; and of its time, and of confluent-kafka's CPU.
TABLE_CPU: Mapping[str, float] = {"none": 0.35, "lz4": 0.5}
TABLE_TIME, TABLE_CPU_OF_CONFLUENT = 1 / 1.7, 0.12
OBJECTS_CPU, OBJECTS_CPU_OF_CONFLUENT = 0.75, 0.2

BOUNDS = """\
What bounds a table: it keeps all columns, in memory that the kernel clears first. About half of \
`read_table`'s time is the kernel's, most of it for these pages; `scan_topic` makes the same columns in \
memory that it used before. Huge pages for large columns, and blocks kept for the next call, are in use; \
views (`layout="view"`) save the copy, but keep all received bytes. The rest is the checksum, the copy of \
keys and values, and the socket. What bounds objects: the interpreter takes half of the time, to make and \
free a record, its key and its value, and to run the program's loop; the kernel takes a quarter, and \
kbatch's own code an eighth."""


class Topic:
    """A new topic with records to read, and the hash of all of them. Leaving the context deletes it."""

    def __init__(self, bootstrap_servers: str, codec: str, records: int) -> None:
        self.settings = {"bootstrap.servers": bootstrap_servers}
        self.name = f"kbatch-bench-read-{codec}-{uuid4().hex[:8]}"
        self.records = records
        self._admin = kbatch.Admin(self.settings)
        self._admin.topics.create(self.name, partitions=PARTITIONS)
        self._fill(codec)

    def _fill(self, codec: str) -> None:
        rows = batch_records()
        table = table_of(rows)
        if self.records % table.num_rows:
            raise ValueError(f"the number of records must be a multiple of {table.num_rows}")
        times = self.records // table.num_rows
        self.digest = digest_of([row[0] for row in rows], [row[1] for row in rows]) * times & MASK
        keys = {"compression.type": codec, "batch.size": BATCH_BYTES, "linger.ms": 100}
        with kbatch.Producer({**self.settings, **keys}) as producer:
            for _ in range(times):
                producer.send_table(self.name, table.select(["key", "value"]))

    def __enter__(self) -> Topic:
        return self

    def __exit__(self, *_: object) -> None:
        self._admin.topics.delete(self.name)
        self._admin.close()


def _readers(names: Sequence[str]) -> list[str]:
    """Return the readers that can run here; print the others to stderr."""
    return able(names, _why_missing) + able([JAVA])


def _why_missing(name: str) -> str | None:
    needed = READERS[name].needs
    return f"no module {needed!r}" if find_spec(needed) is None else free_threads.why_missing(name)


def _job(topic: Topic, name: str, *, verifies: bool) -> dict[str, object]:
    share = 1.0 if verifies or name == JAVA else READERS[name].share
    is_whole = share == 1.0
    return {
        "job": "read",
        "topic": topic.name,
        "partitions": PARTITIONS,
        "records": topic.records if is_whole else int(topic.records * share),
        "rows": [],
        "settings": topic.settings,
        "verifies": verifies,
    }


def _check(name: str, topic: Topic, job: Mapping[str, object], answer: Answer) -> None:
    """Raise ContestError unless the records are those of the topic; fewer were only counted."""
    if answer["delivered"] < int(str(job["records"])):
        raise ContestError(f"{name} read {answer['delivered']} records of {job['records']}")
    if job["verifies"] and int(answer["digest"]) != topic.digest:
        raise ContestError(f"{name} read other records than were sent")


def answers(
    plan: Plan, records: int, names: Sequence[str], rounds: int
) -> dict[tuple[str, str], list[Answer]]:
    """Return the answers of these readers and of Java for each codec, in turns."""
    found: dict[tuple[str, str], list[Answer]] = {}
    with ExitStack() as stack:
        broker = stack.enter_context(plan.cluster())
        topics = {
            codec: stack.enter_context(Topic(broker.bootstrap_servers, codec, records)) for codec in CODECS
        }
        drivers = stack.enter_context(drivers_of(_readers(names)))
        for number in range(-WARM_UP_ROUNDS, plan.rounds_of(rounds)):
            for driver, (codec, topic) in itertools.product(drivers, topics.items()):
                job = _job(topic, driver.name, verifies=number == -WARM_UP_ROUNDS)
                answer = driver.ask(job)
                _check(driver.name, topic, job, answer)
                if number >= 0:
                    found.setdefault((codec, driver.name), []).append(answer)
    return found


def contenders(
    answers: Mapping[tuple[str, str], Sequence[Answer]], codec: str, figure: str
) -> list[Contender]:
    return [
        Contender(
            name,
            found[0]["delivered"],
            timings=[answer[figure] / answer["delivered"] for answer in found],
            note=READERS[name].note if name in READERS else "poll(), key and value read, two rounds before",
        )
        for (of, name), found in answers.items()
        if of == codec
    ]


def setting_of(records: int, names: Sequence[str]) -> str:
    """Describe what these readers read, and how it is checked."""
    shares = ", ".join(f"{name} {READERS[name].share:g}" for name in names if READERS[name].share < 1)
    return (
        f"{records:,} records of 16-byte keys and 100-byte JSON values in batches of up to 128 KiB, "
        f"{PARTITIONS} partitions, a real Kafka. Each client reads from the beginning with its own defaults, "
        f"by a new connection each round ({shares} of the records, at least). In a round before, each hashes "
        f"all keys and values, which must be those that were sent. {listed({'check.crcs': True})}."
    )


def questions(plan: Plan) -> Iterator[Question]:
    records = plan.records_of(RECORDS) // 1000 * 1000
    found = answers(plan, records, CLIENTS, ROUNDS)
    setting = setting_of(records, CLIENTS)
    for codec in CODECS:
        yield Question(
            summary.READING.format(codec),
            f"{setting} The client's process, user and kernel.",
            contenders(found, codec, "cpu_ns"),
            [
                *(
                    Claim(name, JAVA, TABLE_CPU[codec], f"{name}: {TABLE_CPU[codec]} x Java's, or less")
                    for name in (TABLE, STREAM)
                ),
                Claim(TABLE, CONFLUENT, TABLE_CPU_OF_CONFLUENT, "tables: 0.12 x confluent-kafka's, or less"),
                Claim(OBJECTS, JAVA, OBJECTS_CPU, "records: 0.75 x Java's, or less"),
                Claim(
                    OBJECTS, CONFLUENT, OBJECTS_CPU_OF_CONFLUENT, "records: 0.2 x confluent-kafka's, or less"
                ),
                Claim(OBJECTS, TUNED, OBJECTS_CPU_OF_CONFLUENT, "records: 0.2 x the tuned one's, or less"),
            ],
            "ns of CPU a record",
            in_turns=True,
            speaks_of_speed=False,
            after_tables=BOUNDS,
        )
        yield Question(
            f"Time to read a record, {codec}",
            "The same rounds, from opening the client to the last record.",
            contenders(found, codec, "elapsed_ns"),
            [
                Claim(TABLE, JAVA, TABLE_TIME, "tables: 1.7 x Java's records/s"),
                Claim(STREAM, JAVA, TABLE_TIME, "record batches: 1.7 x Java's records/s"),
                Claim(TABLE, CONFLUENT, 1.0, "tables: confluent-kafka's records/s, or more"),
                Claim(TABLE, TUNED, 1.0, "tables: the tuned one's records/s, or more"),
            ],
            in_turns=True,
        )
