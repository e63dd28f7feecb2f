"""What Spark's daemons of Python workers import before they fork: a forked worker starts at once.

Python runs this module when it starts, if its folder is on PYTHONPATH. A daemon is `python -m pyspark.daemon
WORKER_MODULE`. A worker ends with its first error, and each step of a query's plan has a module of its own.
So tests start hundreds, and imports are most of what each does. Spark's own daemon imports nothing, because a
library may start threads, which a fork does not copy.
"""

from __future__ import annotations

import gc
import importlib
import sys
import threading

if sys.orig_argv[1:3] == ["-m", "pyspark.daemon"]:
    for name in ("pandas", "pyarrow", "tests.spark.sinks", sys.orig_argv[3]):
        importlib.import_module(name)
    assert threading.active_count() == 1, threading.enumerate()
    gc.freeze()
