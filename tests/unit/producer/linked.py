"""A producer's engine and the embedded broker, linked without sockets or threads, in virtual time.

Theory of operation. What the engine writes the broker reads at once, and what the broker answers goes back at
once. Time passes only while a call waits, from deadline to deadline. `LinkedBroker` has the methods of a
Broker, and `LinkedProducer` those of a Producer that a story of a transaction needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from kbatch._native.batch.delivery import Delivery
from kbatch.core.client.calls import Call
from kbatch.core.producer.transaction_states import TransactionState
from kbatch.core.producer.transactions import Transactions
from kbatch.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from kbatch.testing import Broker
from kbatch.testing.broker.broker_state import Connection
from kbatch.testing.broker.core import BrokerCore, Reply
from tests.support.links import Link
from tests.support.sending import MS, Sending

T = TypeVar("T")
MAX_STEPS = 1000  # of a call that waits


class LinkedBroker(Broker):
    """One node, whose core runs in the caller's thread."""

    def __init__(self, topics: Any = (), **options: Any) -> None:
        super().__init__(**{"internal_topic_partitions": 1, "seed": 1, **options})
        self.core = BrokerCore(self._new_state())
        (node,) = self.core.state.cluster.nodes
        node.host, node.ports = "n1", [9092]
        self.start_ms = self.core.state.now_ms
        for topic in topics:
            self.create_topic(topic)

    def _call(self, action: Callable[[BrokerCore], T]) -> T:
        return action(self.core)


class LinkedProducer(Sending):
    """The engine of a transactional producer, and its calls, which raise what those of a Producer raise."""

    def __init__(self, broker: LinkedBroker, **settings: Any) -> None:
        self.broker = broker
        self.sessions: dict[int, Connection] = {}
        super().__init__(**settings)

    @property
    def transactions(self) -> Transactions:
        assert self.engine.transactions is not None
        return self.engine.transactions

    # Calls of the user

    def init_transactions(self) -> None:
        self._run_call("init_transactions", self.transactions.initialize)

    def begin_transaction(self) -> None:
        self._run_call("begin_transaction", self.transactions.begin)

    def commit_transaction(self) -> None:
        self._run_call("commit_transaction", self.transactions.commit)

    def abort_transaction(self) -> None:
        self._run_call("abort_transaction", self.transactions.abort)

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_id: str
    ) -> None:
        places = {TopicPartition(place.topic, place.partition): offset for place, offset in offsets.items()}
        command = partial(self.transactions.send_offsets, places, ConsumerGroupMetadata(group_id))
        self._run_call("send_offsets_to_transaction", command)

    def send(self, topic: str, value: bytes) -> Delivery:  # type: ignore[override]
        self._check_usable()
        if self.transactions.state is TransactionState.ABORTABLE_ERROR:
            raise self.transactions.why_abortable()
        for _ in range(MAX_STEPS):
            answer = self.accumulator.append(topic, 0, None, value, None, 1000, self.now_ns, None)
            if isinstance(answer, Delivery):
                self.run()
                return answer
            self.engine.want_topic(topic)
            self._advance()
        raise AssertionError(f"there is no metadata of topic {topic}")

    def _check_usable(self) -> None:
        if self.engine.fatal_error is not None:
            raise self.engine.fatal_error

    def _run_call(self, name: str, command: Callable[[Call, int], None]) -> None:
        self._check_usable()
        call = Call(name)
        self.engine.call(call, command)
        self.run()
        for _ in range(MAX_STEPS):
            if call.is_done:
                break
            self._check_usable()
            self._advance()
        else:
            raise AssertionError(f"{name}() is not done after {MAX_STEPS} deadlines")
        if call.error is not None:
            raise call.error

    def _advance(self) -> None:
        """Run the engine, or wait for its next deadline if it has nothing to do."""
        self.now_ns = max(self.now_ns, self.engine.deadline_ns(self.now_ns))
        self.broker.core.handle_timeout(self.broker_ms)
        self.run()

    # The network

    @property
    def broker_ms(self) -> int:
        return self.broker.start_ms + self.now_ns // MS

    def _write(self, link: Link, size_bytes: int) -> None:
        taken = link.take(size_bytes)
        self.engine.handle_written(link.connection_id, taken, self.now_ns)
        for frame in link.frames():
            session = self.sessions.setdefault(link.connection_id, Connection(0))
            reply = self.broker.core.handle(session, frame, self.broker_ms)
            reply.then(partial(self._answered, link, reply))

    def _answered(self, link: Link, reply: Reply) -> None:
        if link.connection_id not in self.links:
            return
        if reply.closes_connection:
            self._end(link)
            error = ConnectionResetError("closed by the broker")
            self.engine.handle_closed(link.connection_id, error, self.now_ns)
        else:
            self.engine.handle_bytes(link.connection_id, b"".join(reply.buffers or ()), self.now_ns)
