"""kill -9 under librdkafka's producers, transactions and groups: acknowledged records are there, once.

`make soak` runs two hundred such rounds. `python -m tests.fuzz.soak --campaign "broker killed" --block K`
runs a block again; the moments of its kills are the same, but not the requests in flight then.
"""

from pathlib import Path

import pytest

import kbatch
from tests.fuzz import campaign
from tests.fuzz.broker_kills import check_order
from tests.fuzz.broker_process import Stored, stored

pytestmark = pytest.mark.slow

ROUNDS = 3


def test_what_was_acknowledged_survives_kills() -> None:
    tally = campaign.run_block_apart("tests.fuzz.broker_kills", 0, ROUNDS)
    assert sum(tally.outcomes.values()) == ROUNDS


# The judge


def test_the_disk_is_read_up_to_a_torn_tail(tmp_path: Path) -> None:
    values = ["a", "b", "c"]
    with kbatch.SegmentWriter(tmp_path, "topic", 0) as writer:
        for value in values:
            writer.append(kbatch.encode([(None, value.encode())]))
    log_path = writer.log_paths[0]
    log_path.write_bytes(log_path.read_bytes()[:-1])
    assert [record[::2] for record in stored(tmp_path, "topic", 0)] == [(0, "a"), (1, "b")]


@pytest.mark.parametrize(
    "values",
    [["w 0", "w 0"], ["w 0", "w 2"], ["w 1"], ["w 0", "w 1", "w 0"]],
    ids=["doubled", "lost", "lost at the start", "out of order"],
)
def test_log_with_doubled_lost_or_reordered_value_is_refused(values: list[str]) -> None:
    log = [Stored(offset, 1, value) for offset, value in enumerate(values)]
    with pytest.raises(AssertionError):
        check_order(log, "topic-0", is_gapless=True)


def test_a_log_of_two_clients_in_order_is_taken() -> None:
    values = ["v 0", None, "w 0", "w 1", "v 1"]
    log = [Stored(offset, 1, value) for offset, value in enumerate(values)]
    check_order(log, "topic-0", is_gapless=True)
