"""Readers and consumers in programs of their own: interrupted, forked, ended without close()."""

from __future__ import annotations

import signal
import textwrap

import pytest

from kbatch.testing import Broker
from tests.unit.producer.test_programs import ended, interrupt_when_blocked, program

INTERRUPTED = {
    "scan_topic": """
    with kbatch.scan_topic(topic, bootstrap_servers=servers, end=None) as stream:
        next(stream)
    """,
    "in a loop": """
    for batch in kbatch.scan_topic(topic, bootstrap_servers=servers, end=None):
        pass
    """,
    "read_table": """
    kbatch.read_table("held", bootstrap_servers=servers)
    """,
    "poll": """
    with kbatch.Consumer(bootstrap_servers=servers) as consumer:
        consumer.assign([(topic, 0)])
        consumer.poll()
    """,
    "poll_table": """
    with kbatch.Consumer(bootstrap_servers=servers) as consumer:
        consumer.assign([(topic, 0)])
        consumer.poll_table()
    """,
    "for record": """
    with kbatch.Consumer(bootstrap_servers=servers) as consumer:
        consumer.assign([(topic, 0)])
        for record in consumer:
            pass
    """,
    "TopicReader": """
    with kbatch.TopicReader(bootstrap_servers=servers) as reader:
        for record in reader.read_records({kbatch.TopicPartition(topic, 0): (0, None)}):
            pass
    """,
}
SAID = """
try:
    %s
except KeyboardInterrupt:
    print("interrupted", flush=True)
for _ in range(1000):
    left = [each.name for each in threading.enumerate() if each.name.startswith("kbatch-")]
    if not left:
        break
    time.sleep(0.01)
print(left, flush=True)
"""
WATCH = """
def say_when_blocked():
    main = threading.main_thread().ident
    def watch():
        while True:
            names, frame = [], sys._current_frames()[main]
            while frame:
                names.append(frame.f_code.co_name)
                frame = frame.f_back
            waits = {"_await_result", "await_calls", "_await_next", "_await_items"}
            if names[:1] == ["wait"] and waits & set(names):
                break
            time.sleep(0.001)
        print("blocked", flush=True)
    threading.Thread(target=watch, daemon=True, name="watch").start()
say_when_blocked()
"""


@pytest.mark.slow
@pytest.mark.parametrize("what", INTERRUPTED)
def test_R72_an_interrupt_ends_a_read_that_waits(broker: Broker, what: str) -> None:
    broker.create_topic("held")
    if what == "read_table":
        broker.fail_next("ListOffsets", "LEADER_NOT_AVAILABLE", times=1_000_000)
    process = program(broker, WATCH + SAID % INTERRUPTED[what].strip())
    interrupt_when_blocked(process)
    output, _ = ended(process)
    assert output.split("\n")[:2] == ["interrupted", "[]"]


FORKED = """
stream = kbatch.scan_topic(topic, bootstrap_servers=servers, end=None)
reader = kbatch.TopicReader(bootstrap_servers=servers)
reader.partitions(topic)
consumer = kbatch.Consumer(bootstrap_servers=servers)
consumer.assign([(topic, 0)])
child = os.fork()
if not child:
    uses = reader.topics, lambda: next(stream), reader.metrics, lambda: consumer.poll(0), consumer.metrics
    for use in uses:
        try:
            use()
        except kbatch.errors.ForkedConsumerError as error:
            assert "create another in the child process" in str(error)
        else:
            os._exit(3)
    reader.close()
    stream.close()
    consumer.close()
    del reader, stream, consumer
    assert kbatch.read_table(topic, bootstrap_servers=servers).num_rows == 0
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert reader.partitions(topic) == [0]
assert len(consumer.poll(0)) == 0
reader.close()
stream.close()
consumer.close()
print("parent reads on")
"""


def test_ctrl_c_ends_a_program_with_an_open_consumer_by_the_signal(broker: Broker) -> None:
    """Leaving the group at exit makes CPython forget no interrupt: shells stop their loops by this status."""
    text = """
    consumer = kbatch.Consumer(bootstrap_servers=servers, group_id="g")
    consumer.subscribe([topic])
    consumer.poll()
"""
    process = program(broker, WATCH + textwrap.dedent(text))
    interrupt_when_blocked(process)
    _, complaints = ended(process, -signal.SIGINT)
    assert complaints.endswith("KeyboardInterrupt\n")


def test_R72_a_child_refuses_the_readers_of_its_parent(broker: Broker) -> None:
    output, complaints = ended(program(broker, FORKED, "-W", "error::ResourceWarning"))
    assert (output, complaints) == ("parent reads on\n", "")


ITERATED = """
with kbatch.Producer(bootstrap_servers=servers) as producer:
    for number in range(20):
        producer.send(topic, b"%d" % number, partition=0)
consumer = kbatch.Consumer(bootstrap_servers=servers)
consumer.assign({(topic, 0): "beginning"})
iterated = iter(consumer)
found = [next(iterated).offset for _ in range(5)]  # the rest is there
child = os.fork()
if not child:
    try:
        next(iterated)
    except kbatch.errors.ForkedConsumerError:
        os._exit(0)
    os._exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
found += [next(iterated).offset for _ in range(15)]
print(found == list(range(20)))
consumer.close()
"""


def test_R72_a_child_gets_no_record_of_an_iteration(broker: Broker) -> None:
    output, complaints = ended(program(broker, ITERATED))
    assert (output, complaints) == ("True\n", "")


FORGOTTEN = """
reader = kbatch.TopicReader(bootstrap_servers=servers)
stream = kbatch.scan_topic(topic, bootstrap_servers=servers, end=None)
reader.partitions(topic)
consumer = kbatch.Consumer(bootstrap_servers=servers)
consumer.assign([(topic, 0)])
print("ends")
"""


def test_a_program_ends_with_readers_that_are_open(broker: Broker) -> None:
    output, complaints = ended(program(broker, FORGOTTEN))
    assert (output, complaints) == ("ends\n", "")
