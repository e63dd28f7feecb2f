"""Fetch sessions: a broker remembers the partitions, and a request names only changes (KIP-227).

Theory of operation. Without a session, a request names all partitions and has epoch 0, which asks for one. If
the answer has an id, the session is open, and requests have epochs 1, 2 and so on: they name partitions
that are new or whose request differs, and those to forget. The answer leaves out partitions without news.
An error, or a lost answer, ends the session: the next request is complete again, and closes the old session
if the broker may still have it.

After org.apache.kafka.clients.FetchSessionHandler.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import compress
from operator import is_not
from typing import NamedTuple

from kbatch.core.client.backoff import Retried
from kbatch.errors import ErrorCode
from kbatch.records import TopicPartition

NO_SESSION = 0
# A request with this epoch asks for a session; with -1 it is without one, and ends the one that it names.
INITIAL_EPOCH, FINAL_EPOCH = 0, -1
MAX_EPOCH = 2**31 - 1


class Wanted(NamedTuple):
    """The fields of a FetchPartition that may change from request to request."""

    topic_id: bytes
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    max_bytes: int


class SessionRequest(NamedTuple):
    """The part of a request that the session decides.

    Attributes
    ----------
    session_id, epoch : int
    named : Mapping[TopicPartition, Wanted]
        The partitions to name, in the order of the request.
    forgotten : list of tuple[TopicPartition, bytes]
        The partitions to forget, with their topic ids.
    """

    session_id: int
    epoch: int
    named: Mapping[TopicPartition, Wanted]
    forgotten: list[tuple[TopicPartition, bytes]]


class FetchSession(Retried):
    """The session of one client with one node.

    Attributes
    ----------
    session_id : int
        NO_SESSION if there is none.
    epoch : int
        The epoch of the next request.
    attempts, not_before_ns : int
        Those of Retried: another session after an error of this one.
    """

    __slots__ = ("_known", "epoch", "session_id")

    def __init__(self) -> None:
        super().__init__()
        self.session_id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self._known: Mapping[TopicPartition, Wanted] = {}

    @property
    def is_open(self) -> bool:
        """True if the broker has the session, as far as is known."""
        return self.epoch != INITIAL_EPOCH

    def request(self, wanted: Mapping[TopicPartition, Wanted]) -> SessionRequest:
        """Return the part of the next request that asks for these partitions and no others."""
        known, self._known = self._known, wanted
        if not self.is_open:
            return SessionRequest(self.session_id, self.epoch, wanted, [])
        are_others = map(is_not, wanted.values(), map(known.get, wanted))  # most are the same as before
        named = {
            each: asked for each, asked in compress(wanted.items(), are_others) if known.get(each) != asked
        }
        # those of a topic that was created again are other ones: they are forgotten, and named
        forgotten = [
            (each, known[each].topic_id)
            for each, asked in named.items()
            if each in known and known[each].topic_id != asked.topic_id
        ]
        if len(known) > len(wanted) - sum(each not in known for each in named):  # some are not wanted
            forgotten += [(each, asked.topic_id) for each, asked in known.items() if each not in wanted]
        return SessionRequest(self.session_id, self.epoch, named, forgotten)

    def handle_answer(self, session_id: int) -> None:
        """Record an answer without an error."""
        self.session_id = session_id
        if session_id == NO_SESSION:
            self.epoch = INITIAL_EPOCH
        else:
            self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1

    def end(self, code: ErrorCode | None = None) -> None:
        """End the session, after an error, or after a lost answer if there is no code."""
        self.epoch = INITIAL_EPOCH
        if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self.session_id = NO_SESSION
