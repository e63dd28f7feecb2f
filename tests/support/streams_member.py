"""A member of a streams group (KIP-1071): kio writes its heartbeats, a message that kbatch does not have."""

from __future__ import annotations

import socket
from datetime import timedelta
from io import BytesIO
from typing import Any, Self
from uuid import uuid4

from kio.schema.streams_group_heartbeat.v0 import request, response
from kio.serial import entity_reader, entity_writer

from kbatch import Admin
from tests.support.patience import HANG_SECONDS, until

_SUBTOPOLOGY = "0"
_REBALANCE = timedelta(seconds=60)
_write = entity_writer(request.StreamsGroupHeartbeatRequest)
_read = entity_reader(response.StreamsGroupHeartbeatResponse)


class StreamsMember:
    """A member that reads a topic, within its context; it has its tasks then.

    Parameters
    ----------
    bootstrap_servers : str
        The only broker.
    group_id, topic : str
    """

    def __init__(self, bootstrap_servers: str, group_id: str, topic: str) -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self._address = host, int(port)
        self._group_id, self._topic = group_id, topic
        self.member_id = str(uuid4())
        self._epoch = 0
        self._tasks: Any = ()
        self._correlation_id = 0

    def __enter__(self) -> Self:
        with Admin(bootstrap_servers=":".join(map(str, self._address))) as admin:
            admin.groups.offsets(self._group_id)  # once there is a coordinator
        self._socket = socket.create_connection(self._address, timeout=HANG_SECONDS)
        until(self._has_tasks, "the tasks of a streams group", pause_seconds=0.05)
        return self

    def __exit__(self, *_: object) -> None:
        with self._socket:
            self._epoch = -1
            self._beat()

    def _has_tasks(self) -> bool:
        answer = self._beat()
        assert not answer.error_code, answer
        self._epoch = answer.member_epoch
        if answer.active_tasks is not None:
            self._tasks = answer.active_tasks
        return bool(self._tasks)

    def _beat(self) -> Any:
        is_joining, is_leaving = self._epoch == 0, self._epoch < 0
        subtopology = request.Subtopology(
            subtopology_id=_SUBTOPOLOGY,
            source_topics=(self._topic,),  # type: ignore[arg-type]
            state_changelog_topics=(),
            repartition_source_topics=(),
            copartition_groups=(),
        )
        owned = tuple(
            request.TaskIds(subtopology_id=each.subtopology_id, partitions=each.partitions)
            for each in self._tasks
        )
        beat = request.StreamsGroupHeartbeatRequest(
            group_id=self._group_id,  # type: ignore[arg-type]
            member_id=self.member_id,
            member_epoch=self._epoch,  # type: ignore[arg-type]
            endpoint_information_epoch=0,  # type: ignore[arg-type]
            rebalance_timeout=_REBALANCE if is_joining else timedelta(milliseconds=-1),  # type: ignore[arg-type]
            topology=request.Topology(epoch=0, subtopologies=(subtopology,)) if is_joining else None,  # type: ignore[arg-type]
            active_tasks=None if is_leaving else owned,
            standby_tasks=None if is_leaving else (),
            warmup_tasks=None if is_leaving else (),
            process_id=self.member_id if is_joining else None,
            client_tags=() if is_joining else None,
            task_offsets=None,
            task_end_offsets=None,
        )
        body = BytesIO()
        _write(body, beat)
        self._correlation_id += 1
        head = b"\0\x58\0\0" + self._correlation_id.to_bytes(4) + b"\0\7streams\0"  # API 88 in version 0
        frame = head + body.getvalue()
        self._socket.sendall(len(frame).to_bytes(4) + frame)
        size = int.from_bytes(self._received(4))
        answer = self._received(size)[5:]  # after the number of the request, and no tags
        return _read(answer, 0)[0]

    def _received(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += self._socket.recv(size - len(data)) or self._ended()
        return data

    def _ended(self) -> bytes:
        raise ConnectionError("the broker has closed the connection")
