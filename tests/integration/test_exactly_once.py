"""The example of consume-transform-produce, killed and started again: all comes out once and in order.

`make soak` kills a hundred times. `python -m tests.fuzz.soak --campaign "transactions killed" --block K`
runs a block again.
"""

from __future__ import annotations

import random
from contextlib import ExitStack, closing

import pytest

from kbatch.testing import Broker
from tests.fuzz import campaign
from tests.fuzz.exactly_once import Task, Worker

pytestmark = pytest.mark.slow

KILLS = 4
PARTITIONS = 3
RECORDS_OF_A_GROUP = 30_000


def test_worker_killed_at_random_writes_each_record_once() -> None:
    rng = random.Random(1)
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(group_initial_rebalance_delay_ms=0))
        task = stack.enter_context(closing(Task(broker.bootstrap_servers, PARTITIONS)))
        worker = stack.enter_context(closing(Worker(broker.bootstrap_servers, "worker")))
        task.give(2000)
        for _ in range(KILLS):
            worker.start()
            task.await_progress(rng.randrange(1, 1500), worker)
            worker.kill()
            task.give(1000)
        worker.start()
        task.audit(worker)
        worker.stop()
        task.audit()


@pytest.mark.java
def test_clients_and_a_real_broker_are_killed_in_turn(java_jars: None) -> None:
    tally = campaign.run_block_apart("tests.fuzz.transaction_kills", 0, 2)
    assert tally.outcomes == {"client killed": 1, "broker killed": 1}


@pytest.mark.java
@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_members_of_a_group_come_and_go(protocol: str, java_jars: None) -> None:
    block = ["consumer", "classic"].index(protocol)
    tally = campaign.run_block_apart("tests.fuzz.group_churn", block, RECORDS_OF_A_GROUP)
    assert tally.outcomes["records"] == RECORDS_OF_A_GROUP
