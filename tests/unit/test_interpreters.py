"""kbatch in a second interpreter of the process, as mod_wsgi makes them."""

from __future__ import annotations

import subprocess
import sys

from tests import ROOT
from tests.support.patience import HANG_SECONDS

PROGRAM = """
import sys
import kbatch
try:
    import _interpreters
    made = _interpreters.create("legacy")
except ImportError:
    import _xxsubinterpreters as _interpreters
    made = _interpreters.create(isolated=False)
imports = "import sys; sys.path[:] = {}; import kbatch".format(sys.path)
try:
    failed = _interpreters.run_string(made, imports)
    print(failed.formatted if failed is not None else "imported")
except _interpreters.RunFailedError as error:
    print(error)
"""


def test_import_in_a_second_interpreter_begins_with_the_cause() -> None:
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG_SECONDS, check=False)
    assert "native modules cannot be imported: Interpreter change detected" in ran.stdout, ran.stderr
    assert "WSGIApplicationGroup" in ran.stdout
