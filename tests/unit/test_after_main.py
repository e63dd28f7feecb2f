"""What is used for the first time after the main thread has ended, by a thread that is no daemon."""

from __future__ import annotations

import subprocess
import sys

from kbatch.testing import Broker
from tests import ROOT
from tests.support.patience import HANG_SECONDS

PROGRAM = """
import sys, threading
import kbatch

def work():
    threading.main_thread().join()
    with kbatch.Producer(bootstrap_servers=sys.argv[1]) as producer:
        producer.send("t", b"value").result()
    assert kbatch.read_table("t", bootstrap_servers=sys.argv[1]).num_rows == 1
    import pyarrow as pa
    table = pa.table({"value": pa.array([b"a"] * 1000, pa.binary())})
    assert kbatch.encode_arrow(table, partitions=4, threads=2).num_rows
    print("works")

threading.Thread(target=work).start()
"""


def test_first_use_after_the_main_thread() -> None:
    with Broker({"t": 1}) as broker:
        command = [sys.executable, "-c", PROGRAM, broker.bootstrap_servers]
        ran = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
        )
    assert (ran.stdout, ran.returncode) == ("works\n", 0), ran.stderr
