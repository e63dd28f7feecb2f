"""Spark's daemon of Python workers, which has imported what they need: a forked worker starts at once.

Spark runs it as `python -m tests.spark.worker_daemon WORKER_MODULE` (spark.python.daemon.module). A worker
ends with its first error, so that tests of errors start hundreds, and imports are most of what each does.
Spark's own daemon imports nothing, because a library may start threads, which a fork does not copy.
"""

from __future__ import annotations

import gc
import importlib
import sys
import threading

import pandas  # noqa: F401
import pyarrow  # noqa: F401
from pyspark import daemon

import tests.spark.sinks  # noqa: F401

if __name__ == "__main__":
    importlib.import_module(sys.argv[1])
    assert threading.active_count() == 1, threading.enumerate()
    gc.freeze()
    daemon.manager()
