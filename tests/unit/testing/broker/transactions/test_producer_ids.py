"""Producer ids: no id twice, for any callers and crashes."""

import json
import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from kbatch.errors import ErrorCode
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.transactions.producer_ids import BLOCK_SIZE, MAX_PRODUCER_ID, ProducerIdBlocks

# Prints the ids that it takes, each before the next is taken, until it is killed or has `count`.
TAKE_IDS = """
import sys
from pathlib import Path
from kbatch.testing.broker.transactions.producer_ids import ProducerIdBlocks

path, broker_id, count, per_object = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
for _ in range(count):
    blocks = ProducerIdBlocks(path, broker_id)
    for _ in range(per_object):
        print(blocks.next(), flush=True)
"""


def start_taker(path: Path, broker_id: int, count: int, per_object: int) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", TAKE_IDS, str(path), str(broker_id), str(count), str(per_object)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def write_block(path: Path, block_end: int, generation: int = 1) -> None:
    block = {"version": 1, "broker": 0, "block_start": "0", "block_end": str(block_end)}
    path.write_text(json.dumps({**block, "generation": generation}))


def test_ids_follow_each_other_over_blocks() -> None:
    blocks = ProducerIdBlocks()
    assert [blocks.next() for _ in range(2 * BLOCK_SIZE + 1)] == list(range(2 * BLOCK_SIZE + 1))


def test_a_file_says_which_block_was_given_and_to_whom(tmp_path: Path) -> None:
    path = tmp_path / "producer_ids.json"
    first, second = ProducerIdBlocks(path, 1), ProducerIdBlocks(path, 2)
    assert (first.next(), second.next(), first.next(), second.next()) == (0, 1000, 1, 1001)
    assert json.loads(path.read_text()) == {
        "version": 1,
        "broker": 2,
        "block_start": "1000",
        "block_end": "1999",
        "generation": 2,
    }


def test_restart_continues_after_the_last_block(tmp_path: Path) -> None:
    path = tmp_path / "producer_ids.json"
    ProducerIdBlocks(path).next()
    assert ProducerIdBlocks(path).next() == BLOCK_SIZE


def test_a_left_over_temporary_file_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "producer_ids.json"
    ProducerIdBlocks(path).next()
    (tmp_path / "producer_ids.json.tmp").write_text('{"version": 1, "bro')
    assert ProducerIdBlocks(path).next() == BLOCK_SIZE


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}', '{"block_end": "x", "generation": 1}'])
def test_a_file_that_holds_no_block_gives_no_id(tmp_path: Path, text: str) -> None:
    path = tmp_path / "producer_ids.json"
    path.write_text(text)
    with pytest.raises(BrokerError, match="does not hold a block") as caught:
        ProducerIdBlocks(path).next()
    assert caught.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert path.read_text() == text


def test_an_older_copy_of_the_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "producer_ids.json"
    ProducerIdBlocks(path).next()
    copy = path.read_text()
    blocks = ProducerIdBlocks(path)
    for _ in range(BLOCK_SIZE):
        blocks.next()
    path.write_text(copy)
    with pytest.raises(BrokerError, match="went back from generation 2 to 1"):
        blocks.next()


def test_the_last_whole_block_is_given_and_none_after_it(tmp_path: Path) -> None:
    path = tmp_path / "producer_ids.json"
    write_block(path, MAX_PRODUCER_ID - BLOCK_SIZE)
    blocks = ProducerIdBlocks(path)
    ids = [blocks.next() for _ in range(BLOCK_SIZE)]
    assert ids[-1] == MAX_PRODUCER_ID
    with pytest.raises(BrokerError, match="All producer ids are used up") as caught:
        blocks.next()
    assert caught.value.code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_block_that_would_end_too_late_is_not_given(tmp_path: Path) -> None:
    path = tmp_path / "producer_ids.json"
    write_block(path, MAX_PRODUCER_ID - BLOCK_SIZE + 1)
    with pytest.raises(BrokerError, match="All producer ids are used up"):
        ProducerIdBlocks(path).next()


def test_several_processes_never_get_the_same_id(tmp_path: Path) -> None:
    path = tmp_path / "producer_ids.json"
    takers = [start_taker(path, broker_id, 100, 3) for broker_id in range(4)]
    taken = [list(map(int, taker.communicate()[0].split())) for taker in takers]
    assert [taker.returncode for taker in takers] == [0, 0, 0, 0]
    ids = [each for of_one in taken for each in of_one]
    assert len(set(ids)) == len(ids) == 4 * 100 * 3
    assert json.loads(path.read_text())["generation"] == 4 * 100


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_killed_process_leaves_no_lock_and_no_reusable_block(tmp_path: Path) -> None:
    path = tmp_path / "producer_ids.json"
    survivor = start_taker(path, 0, 200, 1)
    ids: list[int] = []
    for round_number in range(8):
        with start_taker(path, 1, 1_000_000, 1) as victim:
            assert victim.stdout is not None
            # at another point of its work in each round
            ids += [int(victim.stdout.readline()) for _ in range(3 + 7 * round_number)]
            os.kill(victim.pid, signal.SIGKILL)
            ids += [int(line) for line in victim.stdout.read().split("\n")[:-1]]
    ids += list(map(int, survivor.communicate()[0].split()))
    assert survivor.returncode == 0
    assert len(set(ids)) == len(ids)
    after = ProducerIdBlocks(path).next()
    assert after > max(ids)


def test_each_broker_gets_growing_ids(tmp_path: Path) -> None:
    path = tmp_path / "producer_ids.json"
    blocks = [ProducerIdBlocks(path, broker_id) for broker_id in range(3)]
    taken = [[each.next() for each in blocks] for _ in range(BLOCK_SIZE + 1)]
    for of_one in zip(*taken, strict=True):
        assert all(earlier < later for earlier, later in pairwise(of_one))
    assert len({each for row in taken for each in row}) == 3 * (BLOCK_SIZE + 1)
