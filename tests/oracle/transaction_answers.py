"""The meaning of each response to a request of a transaction, written by hand: it judges kbatch's tables.

After the handlers of Kafka 4.1's TransactionManager and Sender, and KIP-360, KIP-447, KIP-890 and KIP-1050;
numbers of codes and names of requests are those of Kafka's protocol. Nothing here is imported from kbatch.

A request has a row of its special codes. The others are RETRY if Kafka's class of the code is a
RetriableException, and else the row's `OTHERWISE`. A comment marks where kbatch differs from Java.
"""

from __future__ import annotations

from collections.abc import Mapping

DONE = "it is done"
RETRY = "sent again to the same node"
FIND = "the coordinator is asked for, and the request sent again"
SPLIT = "sent again in smaller batches; abortable if there is one record"
GAP = "what is missing is found out"
ABORT = "abortable"
REJOIN = "abortable, as CommitFailedException"
BUMP = "abortable if the epoch can be bumped, else fatal"
AGAIN = "init fails, and can be repeated; as part of an abort it is abortable"
GONE = "there is nothing to be aborted, and the epoch is bumped; fatal if it cannot be"
FENCED = "fatal, as ProducerFencedException"
FATAL = "fatal"

OTHERWISE = -1  # UNKNOWN_SERVER_ERROR, as which a code is taken that Kafka does not have yet

# RetriableException and its subclasses, of which these refresh metadata ...
_STALE_METADATA = {3, 5, 6, 9, 13, 56, 72, 74, 80, 83, 84, 100, 103}
# ... and these are of a coordinator that is elsewhere.
_NO_COORDINATOR = {15, 16}
RETRIABLE = frozenset(
    {2, 7, 14, 19, 20, 41, 51, 70, 71, 75, 78, 88, 89, 106, 122, 123, 133} | _STALE_METADATA | _NO_COORDINATOR
)

ANSWERS: Mapping[str, Mapping[int, str]] = {
    # no other coordinator is possible: 15 and 16 are as other retriable codes
    "FindCoordinator": {30: ABORT, 53: FATAL, 120: ABORT, OTHERWISE: FATAL},
    "InitProducerId": {
        **{15: FIND, 16: FIND},
        **{31: AGAIN, 53: AGAIN},
        **{47: FENCED, 90: FENCED},
        120: ABORT,
        OTHERWISE: FATAL,
    },
    "AddPartitionsToTxn": {
        **{15: FIND, 16: FIND},
        **{29: ABORT, 55: ABORT, 120: ABORT},
        59: BUMP,
        **{47: FENCED, 90: FENCED},
        **{48: FATAL, 49: FATAL, 53: FATAL},
        OTHERWISE: ABORT,  # it is said of a partition
    },
    "AddOffsetsToTxn": {
        **{15: FIND, 16: FIND},
        **{30: ABORT, 120: ABORT},
        59: BUMP,
        **{47: FENCED, 90: FENCED},
        **{48: FATAL, 49: FATAL, 53: FATAL},
        OTHERWISE: FATAL,
    },
    "TxnOffsetCommit": {
        **{7: FIND, 15: FIND, 16: FIND},  # of the group
        **{30: ABORT, 82: ABORT, 120: ABORT},
        **{22: REJOIN, 25: REJOIN},
        **{47: FENCED, 90: FENCED},
        **{43: FATAL, 53: FATAL},
        OTHERWISE: FATAL,
    },
    "EndTxn (commit)": {
        **{15: FIND, 16: FIND},
        # fatal in Java, though after a time-out an abort agrees with what the coordinator has done
        48: ABORT,
        120: ABORT,
        59: BUMP,
        **{47: FENCED, 90: FENCED},
        **{49: FATAL, 53: FATAL},
        OTHERWISE: FATAL,
    },
    "EndTxn (abort)": {
        **{15: FIND, 16: FIND},
        # in Java the abort fails with it, though nothing is left that could be aborted
        59: GONE,
        **{47: FENCED, 90: FENCED},
        **{48: FATAL, 49: FATAL, 53: FATAL},
        120: FATAL,
        OTHERWISE: FATAL,
    },
    "Produce": {
        46: DONE,
        10: SPLIT,
        **{45: GAP, 59: GAP},
        **{31: FATAL, 35: FATAL, 49: FATAL, 53: FATAL, 90: FATAL},
        OTHERWISE: ABORT,  # 47, 48 and 120 too
    },
}


def meaning_of(request: str, code: int) -> str:
    """Return the meaning of a response with this code; any 16-bit number can be one."""
    if code == 0:
        return DONE
    row = ANSWERS[request]
    return row.get(code) or (RETRY if code in RETRIABLE else row[OTHERWISE])
