"""The campaign of exits: programs that end in all kinds of ways while a producer of theirs is at work.

Theory of operation. A block is an embedded broker, and for each round a program, in a way of ending and with
a configuration that are drawn from the block's number. It sends numbered values, says how many were accepted,
and ends; nothing closes its producer but the end of the interpreter. The process has a minute, and its own
status: no abort, no fault. All that was accepted before it ended is in the log, once, in order.
"""

from __future__ import annotations

import random
import subprocess
import sys
from typing import NamedTuple

from kbatch.testing import Broker
from tests.fuzz import campaign

BLOCK_CASES = 40
SECONDS = 60.0
TOPIC = "exits"
PROGRAM = """
import asyncio, gc, os, random, signal, sys, threading, time
import kbatch
from kbatch.codecs import CODEC_NAMES

servers, topic, name, seed = sys.argv[1:]
rng = random.Random(seed)
settings = dict(
    bootstrap_servers=servers, batch_size=rng.choice((300, 16_384)), linger_ms=rng.choice((0, 5, 1000)),
    compression_type=rng.choice(CODEC_NAMES),
)
callback = rng.choice((None, lambda metadata, error: None))

def send(producer, count):
    for number in range(count):
        producer.send(topic, f"{name}:{number}".encode(), on_delivery=callback)

def accepted(count):
    print(count, flush=True)
"""
ORDINARY = """
producer = kbatch.Producer(**settings)
send(producer, 500)
accepted(500)
"""
ON_A_LOOP = """
async def main():
    global producer
    producer = kbatch.AsyncProducer(**settings)
    for number in range(500):
        await producer.send(topic, f"{name}:{number}".encode(), on_delivery=callback)
    accepted(500)
"""


class Ending(NamedTuple):
    """The end of PROGRAM, and its allowed exit statuses."""

    text: str
    statuses: tuple[int, ...] = (0,)


ENDINGS = {
    "at the end of the program": Ending(ORDINARY),
    "by sys.exit()": Ending(ORDINARY + "sys.exit(3)", (3,)),
    "by an exception": Ending(ORDINARY + "raise ValueError", (1,)),
    "by Ctrl-C": Ending(ORDINARY + "signal.raise_signal(signal.SIGINT)", (1, -2)),
    "in a cycle": Ending(ORDINARY + "cycle = [producer]; cycle.append(cycle); del producer, cycle"),
    "beside threads that send": Ending(
        """
producer = kbatch.Producer(**settings)
send(producer, 500)
def others():
    while True:
        producer.send(topic, b"other:0")
for _ in range(3):
    threading.Thread(target=others, daemon=True).start()
time.sleep(rng.random() / 50)
accepted(500)
"""
    ),
    "with a local of a loop that has ended": Ending(
        ON_A_LOOP.replace("    global producer\n", "") + "asyncio.run(main())"
    ),
    "with a loop that has ended": Ending(ON_A_LOOP + "asyncio.run(main())"),
    "with a loop that was left": Ending(
        ON_A_LOOP + "loop = asyncio.new_event_loop(); loop.run_until_complete(main())"
    ),
}


def ended(broker: Broker, ending: Ending, name: str) -> None:
    """Run a program to its end; AssertionError unless it ends as expected."""
    command = [sys.executable, "-X", "faulthandler", "-c", PROGRAM + ending.text]
    done = subprocess.run(
        [*command, broker.bootstrap_servers, TOPIC, name, name],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode in ending.statuses, (name, done.returncode, done.stderr)
    assert "Fatal Python error" not in done.stderr, (name, done.stderr)
    values = [record.value or b"" for record in broker.records(TOPIC)]
    mine = [int(value.split(b":")[1]) for value in values if value.startswith(name.encode() + b":")]
    assert mine == list(range(int(done.stdout))), (name, len(mine), done.stdout, done.stderr)


def play(run: campaign.Run) -> None:
    """Check a block of programs."""
    rng = random.Random(f"exits {run.block}")
    kinds = list(ENDINGS)
    with Broker({TOPIC: 1}) as broker:
        for number in range(run.cases):
            kind = kinds[(number + run.block) % len(kinds)]
            run.say(number, kind)
            ended(broker, ENDINGS[kind], f"{run.block}-{number}-{rng.randrange(10**6)}")
            run.outcomes[kind] += 1
