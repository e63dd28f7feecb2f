"""The hunt for planted bugs: which world detects each of them, and docs/simulation.md, which says so.

Every bug is a weakness that a real client had or has; those marked Java are behaviours of Kafka's own
client that the design rules out. `python -m tests.simulation.planted_bugs` tries each against its seed in
docs/simulation.md, if that no longer detects it against seeds 0, 1, 2 ..., and writes the page.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
from collections.abc import Callable
from typing import NamedTuple

from tests import ROOT
from tests.simulation.planted import BUGS
from tests.simulation.planted.planting import Bug, planted
from tests.simulation.worlds import SimulationError, simulate, simulate_process, simulate_readers

BUDGET = 2000  # seeds
PLANTED_BADLY = (AttributeError, NameError, TypeError)  # what is replaced has changed: nothing was seen
PAGE = ROOT / "docs" / "simulation.md"

INTRODUCTION = """\
Would the simulator find a bug in the producer? Each row below is a bug that was planted on purpose, the seed
of a world that detects it, and the message of that world.
`python -m tests.simulation --seed N --verbose` replays one; `make simulate SEEDS=0:1000` runs many.

## Worlds

The producer that users run, an application that calls it, a network and the embedded broker's core run in one
thread and in virtual time; a seed replays exactly. The network drives the engine by the code of the sender's
thread (EngineRounds), with connections of its own. Connections break at any byte, requests arrive twice,
answers are late, lost or errors, leaders move, brokers restart and forget, the wall clock steps. Topics are
made again, with fewer partitions or more, with topic ids or, by brokers of old, without. Another cluster gets
the addresses, with topics of the same names. Nodes lack Produce or InitProducerId for a while after a
restart. Leaders die, and logs are cut where the next leader's copy ends: at the high watermark, or below it
in an unclean election. Some applications send tables and encoded batches between their records. Some brokers
want a login, and end sessions that are not renewed; some tokens do not come, or are refused. In every other
world the sender has a lane. Every third world, from 2 on, runs transactions. Applications crash, close,
repeat calls that timed out, and are declared dead but continue. Coordinators move, refuse and stay silent.
Transactions exceed `transaction.timeout.ms`; `transaction.version` changes.

A third of all worlds, of readers too, have replicas with logs of their own, which follow, lag and are
elected. Nodes are killed, end cleanly, and restart one after the other; they are stopped and go on as
leaders that are none any more; they are cut off from the controller, from each other and from clients.
Followers stop or are slow, partitions move to other nodes, `min.insync.replicas` changes, other controllers
become active. Some worlds allow unclean elections, and in some machines die with what they had not flushed,
also just when they are to be in sync, or disks fail.

Coordinators are those of Kafka, too: they answer when what they store is replicated, and the next one knows
what its log has; that of transactions as soon as it is replicated, too. Some are deposed just as they store a
commit. Where a log has lost what was committed, a group has forgotten commits, and a transaction may end in
another way than it was said to.

Then all is healed, and these must be true:

- Every delivery has one outcome, and it is true. Callbacks of a partition come in order.
- Nothing is in a log twice, out of order or with other bytes. Sequences have no gaps. What may be in the
  log is never sent under another number. Nothing follows a batch to a leader that may have forgotten the
  producer.
- What had time enough is delivered. All memory came back. A sender that sleeps leaves no batch that it, or
  its lane, could send while nothing is in flight: nothing but chance would wake it.
- Readers of committed data see all that was committed, nothing that was aborted, and all or nothing of a
  transaction with unknown outcome. They see it in order, a fenced producer's records before its
  successor's. Offsets go with their transaction. No transaction stays open.

In replicated worlds also, after every event (the names are those of the TLA+ specification of KIP-966):

- S01 ValidReplicaState: offsets have no gap, and epochs do not fall along a log. S02: where a log says that
  leader epochs start, they do, by its batches; the last one may have none. S03 LogMatching, S14
  ConsistentRead: what is below the high watermarks of two replicas is the same, and stays. S04: no two
  batches have the same leader epoch and offset. S05 SingleLeader: a leader epoch has one leader. S06
  MonotonicEpoch: epochs never fall, on the controller and on nodes.
- S07 LeaderInIsr. S08 ValidControllerIsrAndElr, ValidControllerState: in-sync and eligible replicas are
  replicas, and not both; no node in sync is fenced. S09 ReplicationQuorumSuperset: the leader counts whoever
  is in sync. S10 StrongIsr, S11 LeaderCompleteness: who may lead, and who leads, has all that is committed.
- S12 NoCommittedRecordLostGlobally. S13 MonotonicHighWatermark. S15 MetadataLogMatching: what a node knows
  was true. S16: what a replica knows of producers is what its log says. S17: and of aborted transactions;
  start, last stable offset, high watermark and end are in this order.
- S18: what is acknowledged with acks=all is committed. S19: what was acknowledged with acks=1 and is not
  there was cut off, by a follower of a later leader than the one that wrote it. S20: what failed with
  `possibly_persisted` False was never in any replica. S21: nothing is twice in what is committed. S22
  ValidFetcherState: a follower that lacks something and reaches its leader is about to get it, and waits for
  no Fetch that was lost. S23: when all is healed, all replicas are in sync and equal, and no move is
  unfinished.

S03 and S10 to S14 hold while no election was unclean, and no disk was lost with as many nodes as make a
quorum.

## Planted bugs

Transaction bugs are hunted only in worlds with transactions.

- Bugs are planted in the producer as users run it: no part of it is off.
- Rules of sequences that are in C are replaced by wrong ones in C, for all that call them, or only while the
  lane works.
- An acknowledged record may be lost only after an unclean election or with acks=1.
- A duplicated connection is a Produce request that the broker gets, and executes, on two connections; TCP
  does not duplicate the bytes of one. The wall clock steps both ways. The monotonic clock only advances, as
  Python promises for `time.monotonic` (PEP 418); a unit test turns it back (D07).
- No world can detect one weakness of Java, that the compression of tiny batches sets the estimate for full
  ones: it changes only the size of batches. Unit tests do (`test_a_tiny_batch_teaches_nothing`,
  `test_C09_a_batch_below_a_quarter_does_not_move_the_ratio`).

`python -m tests.simulation.planted_bugs` writes this page.
"""

READERS = """\
## Worlds of readers

Would it find a bug in a consumer? `simulate_readers(seed)` makes worlds with seeds of their own
(`python -m tests.simulation --readers --seed N --verbose`): members of a group, each with the engine and the
rounds that users' consumers have, a program that polls, and the embedded broker's coordinator. They read what
producers of transactions write. The group has the consumer protocol (KIP-848), the classic one with any
assignor, or members of both. Members die, come back, leave and join; processes stop for longer than their
session; programs do not poll for longer than `max.poll.interval.ms`; the coordinator removes members, moves
and refuses; leaders move, die and lose what was not replicated; brokers stop and forget fetch sessions;
connections break, answers are late or lost; topics get partitions; they are deleted, and made anew with more
partitions or fewer; some brokers are old and have no topic ids. Programs commit in five ways, seek and pause.
In some worlds a few records fill the memory for what was fetched.

All the time, these must be true:

- A piece of a partition has the visible records between its offsets, in order: nothing of an aborted
  transaction, nothing twice, nothing left out. It begins where the last one ended; the first one begins at an
  offset that the group has committed. So a record comes at most once between a commit and the next start.
- A committed offset never passes what was read, and goes back only after a seek or a reset, or by a request
  of a connection that had ended. An offset of a deleted topic is not committed for a new one of its name.
- No two members that the coordinator counts own a partition. Programs see each partition assigned once, and
  then given up or lost once.
- Memory stays within `kbatch.fetch.buffer.memory`, and all of it comes back. A node has one Fetch at a time.
- A thread that sleeps has asked every node that it could ask, or connect to: heartbeats would hide that it
  was not woken. Programs wake it only where users' consumers do.

Then all is healed. Each partition gets one owner, the lag reaches 0, every committed record was read, of
topics that were made anew too, and nothing moves any more. At last the members leave, and the group is empty.

"""
REPLICAS = """\
## Bugs of replication

Would it find a bug in the broker, so that what it says of clients can be believed? These are planted in the
embedded broker, and hunted in replicated worlds of producers only. They are those of Kafka's own history,
and what the TLA+ specification of KIP-966 warns of.

"""
PROCESS = """\
## Worlds of process()

Would it find a record that `process()` loses? `simulate_process(seed)` makes worlds with seeds of their own
(`python -m tests.simulation --process --seed N --verbose`). They have what decides which record runs next and
what is committed; around it, a log with gaps, workers that take their time, functions and handlers that fail,
a coordinator that moves partitions and takes commits of the owner only, members that die or hear late that
they have lost a partition, and commits that are slow, refused, too large, or taken without an answer. Records
behind failed ones are parked, and read again, which takes time or fails.

All the time, these must be true:

- What is committed is finished: every record before the offset, and all that the metadata says. A commit
  never goes back.
- An owner does not run what the commit that it began with says is finished. Records of a key run one after
  the other, and are first finished in order.
- Nothing begins of a partition that is to be given up. Waits and numbers of attempts are as `Retry` says.
- Limits of workers, records, bytes and offsets ahead hold, also of records behind a failed one. What waits is
  behind something that runs, backs off or is read again.

Then there are no more faults. Every record must be finished, and each partition committed up to its end.

"""
HEAD = ("| bug | what it does | seed | message |", "|---|---|---|---|")


class Caught(NamedTuple):
    """A seed whose world detects a bug, and its message; -1 if none does."""

    seed: int
    text: str


def hunt(bug: Bug, seeds: range) -> Caught:
    """Return the first seed whose world detects a bug; a world that fails without it detects nothing."""
    live: Callable[[int], object] = simulate_readers if bug.is_of_readers else simulate
    if bug.is_of_process:
        live = simulate_process
    for seed in filter(bug.may_be_seen, seeds):
        with planted(bug):
            found = _failure(live, seed)
        if isinstance(found, PLANTED_BADLY):
            raise found from None
        if found is not None and _failure(live, seed) is None:
            return Caught(seed, str(found) or type(found).__name__)
    return Caught(-1, "")


def _failure(live: Callable[[int], object], seed: int) -> BaseException | None:
    """Return what a world fails with, None if it does not."""
    try:
        live(seed)
    except SimulationError as error:
        return error.__cause__
    return None


def find(name: str, budget: int) -> Caught:
    """Detect the bug by its known seed, or else by the first of `budget` seeds."""
    seed = known_seeds().get(name, -1)
    known = hunt(BUGS[name], range(seed, seed + 1)) if seed >= 0 else Caught(-1, "")
    return known if known.seed >= 0 else hunt(BUGS[name], range(budget))


def page(found: dict[str, Caught]) -> str:
    """Return docs/simulation.md."""
    rows = _rows(found)
    lines = [
        "# Bugs that the simulation detects",
        "",
        INTRODUCTION,
        *HEAD,
        *(row for name, row in rows.items() if _kind(BUGS[name]) == "producers"),
        "",
        REPLICAS,
        *HEAD,
        *(row for name, row in rows.items() if _kind(BUGS[name]) == "replicas"),
        "",
        READERS,
        *HEAD,
        *(row for name, row in rows.items() if _kind(BUGS[name]) == "readers"),
        "",
        PROCESS,
        *HEAD,
        *(row for name, row in rows.items() if _kind(BUGS[name]) == "process"),
    ]
    return "\n".join(lines) + "\n"


def _kind(bug: Bug) -> str:
    """Return the table of the page that a bug is in."""
    kinds = {"replicas": bug.is_of_replicas, "readers": bug.is_of_readers, "process": bug.is_of_process}
    return next((kind for kind, is_so in kinds.items() if is_so), "producers")


def _rows(found: dict[str, Caught]) -> dict[str, str]:
    """Return the row of each bug."""
    rows = {}
    for name, (seed, text) in found.items():
        said = re.sub(" at 0x[0-9a-f]+", "", text.splitlines()[0].replace("|", "/") if text else "")
        said = said if len(said) <= 140 else said[:137] + "..."
        cells = (name.replace("_", " "), BUGS[name].doc, str(seed) if seed >= 0 else "-", said)
        rows[name] = f"| {' | '.join(cells)} |"
    return rows


def known_seeds() -> dict[str, int]:
    """Return the seed of each bug in docs/simulation.md."""
    rows = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    seeds = {row[0].removeprefix("| ").replace(" ", "_"): row[2] for row in rows}
    return {name: int(seed) for name, seed in seeds.items() if seed.isdecimal()}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.planted_bugs", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="bug", help="only these; nothing is written then")
    parser.add_argument("--budget", type=int, default=BUDGET, help="seeds that each is tried with")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    found = {}
    for name in arguments.names or BUGS:
        found[name] = find(name, arguments.budget)
        print(f"{name}: {found[name].seed} {found[name].text[:120]}", flush=True)
    if not arguments.names:
        PAGE.write_text(page(found))
    return 1 if any(caught.seed < 0 for caught in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
