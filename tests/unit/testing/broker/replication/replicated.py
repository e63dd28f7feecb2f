"""A replicated topic in virtual time, whose followers a test holds, plays or lets go."""

from __future__ import annotations

from typing import Any

from kbatch.protocol import messages
from kbatch.testing.broker.logs.partition import Partition
from tests.support.broker_core import (
    TOPIC,
    Answer,
    VirtualBroker,
    batch,
    fetch_request,
    fetched,
    produce_request,
    produced,
)

ALL, LEADER = -1, 1


class Replicated(VirtualBroker):
    """A cluster of three nodes with a topic of one partition, which node 0 leads at first."""

    def __init__(self, nodes: int = 3, **options: Any) -> None:
        super().__init__(nodes, **options)

    @property
    def partition(self) -> Any:
        return self.state.cluster.partition(TOPIC, 0)

    @property
    def known(self) -> Any:
        return self.partition.registration

    def log(self, node: int) -> Partition:
        log: Partition = self.partition.copies[node].log
        return log

    def ends(self) -> dict[int, tuple[int, int]]:
        """Return (log end, high watermark) of each replica."""
        return {
            node: (copy.log.log_end_offset, copy.log.high_watermark)
            for node, copy in self.partition.copies.items()
        }

    def values_at(self, node: int) -> list[bytes]:
        return [bytes(record.value or b"") for each in self.log(node).batches() for record in each]

    def send(self, *values: bytes, acks: int = ALL, node: int | None = None, **fields: Any) -> Answer:
        leader = self.partition.leader if node is None else node
        request = produce_request(self, batch(*values), acks=acks, **fields)
        return self.client(leader).send(request)

    def put(self, *values: bytes, acks: int = ALL, node: int | None = None) -> Any:
        """Return the answer for the partition, which must be there at once."""
        return produced(self.send(*values, acks=acks, node=node).message)

    def fetch(self, node: int = 0, offset: int = 0, version: int | None = None, **fields: Any) -> Any:
        """Return what a consumer gets at once."""
        return fetched(self.client(node).ask(fetch_request(self, offset, **fields), version))

    def fetch_as(self, follower: int, offset: int, last_epoch: int = -1, **fields: Any) -> Any:
        """Return what a played follower gets at once."""
        return fetched(
            self.client(self.partition.leader).ask(
                self.follower_request(follower, offset, last_epoch, **fields)
            )
        )

    def follower_request(
        self,
        follower: int,
        offset: int,
        last_epoch: int = -1,
        *,
        broker_epoch: int = -1,
        **fields: Any,
    ) -> Any:
        request = fetch_request(self, offset, **{"leader_epoch": self.partition.leader_epoch, **fields})
        request.replica_state = messages.FetchRequest.ReplicaState(
            replica_id=follower, replica_epoch=broker_epoch
        )
        request.topics[0].partitions[0].last_fetched_epoch = last_epoch
        return request

    def latest(self, node: int | None = None, version: int = 7) -> tuple[int, int]:
        """Return (code, offset) of ListOffsets."""
        kind = messages.ListOffsetsRequest
        wanted = kind.ListOffsetsPartition(partition_index=0, timestamp=-1)
        topic = kind.ListOffsetsTopic(name=TOPIC, partitions=[wanted])
        request = kind(replica_id=-1, topics=[topic])
        answer = self.client(self.partition.leader if node is None else node).ask(request, version)
        found = answer.topics[0].partitions[0]
        return found.error_code, found.offset

    def kill(self, node: int, **how: bool) -> None:
        self.act(lambda state: state.kill_node(node, **how))

    def stop(self, node: int) -> None:
        self.act(lambda state: state.stop_node(node))

    def start(self, node: int) -> None:
        self.act(lambda state: state.start_node(node))

    def move(self, node: int, *, unclean: bool = False) -> None:
        self.act(lambda state: state.move_leader(TOPIC, 0, node, unclean=unclean))

    def cut(self, *groups: set[Any]) -> None:
        self.act(lambda state: state.outages.divide(groups, self.now_ms))

    def heal(self) -> None:
        self.act(lambda state: state.outages.heal(self.now_ms))

    def reassign(self, *target: int) -> None:
        self.act(lambda state: state.reassign(TOPIC, 0, target or None))
