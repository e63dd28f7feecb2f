"""Instructions of drivers, counted by callgrind between two moments. They depend neither on other load nor on
the machine's speed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.clients.contest import Driver
from kbatch.bench.contest import ContestError

# Python starts slowly under valgrind.
READY_SECONDS, LOOK_SECONDS = 300.0, 0.02
_TOTALS = re.compile(r"^totals: (\d+)$", re.MULTILINE)


def why_uncounted() -> str | None:
    """Return why instructions cannot be counted here, or None if they can."""
    missing = [name for name in ("valgrind", "callgrind_control") if shutil.which(name) is None]
    return f"no `{missing[0]}` on PATH" if missing else None


class Marks:
    """The files by which a driver says that it has read so many records: the field "marks" of its job.

    Parameters
    ----------
    folder : Path
    name : str
        The driver's.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name

    def after(self, *counts: int) -> dict[str, str]:
        """Return the field for marks after these numbers of records."""
        return {str(count): str(self._file(count)) for count in counts}

    def wait(self, count: int) -> None:
        """Wait until the driver has read so many records."""
        patience_ends = time.monotonic() + READY_SECONDS
        while not self._file(count).exists():
            if time.monotonic() > patience_ends:
                raise ContestError(f"{self._name} did not get {count} records within {READY_SECONDS:g} s")
            time.sleep(LOOK_SECONDS)

    def _file(self, count: int) -> Path:
        return self._folder / f"{count} records"


class CountedDriver(Driver):
    """The process of a contestant, under valgrind.

    Parameters
    ----------
    name : str
    folder : Path
        An empty one, for what callgrind and the driver write.

    Attributes
    ----------
    marks : Marks
    """

    def __init__(self, name: str, folder: Path) -> None:
        self._output = folder / "callgrind.out"
        self.marks = Marks(folder, name)
        super().__init__(name)

    def command(self) -> list[str]:
        valgrind = ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no"]
        output = f"--callgrind-out-file={self._output}"
        # without PYTHONHASHSEED the order of sets of strings differs from run to run
        return [
            "env",
            "PYTHONHASHSEED=0",
            *valgrind,
            output,
            sys.executable,
            "-m",
            "benchmarks.clients.driver",
            self.name,
        ]

    def begin(self, count: int) -> None:
        """Count from now on, after the driver has so many records."""
        self.marks.wait(count)
        self._control("-i", "on")

    def end(self, count: int) -> int:
        """Count up to so many records, and return the instructions of all threads since `begin`, in user
        mode.
        """
        self.marks.wait(count)
        self._control("-d")
        self._control("-i", "off")
        (dump,) = self._output.parent.glob(f"{self._output.name}.*")
        found: Any = _TOTALS.search(dump.read_text())
        return int(found[1])

    def _control(self, *arguments: str) -> None:
        command = ["callgrind_control", *arguments, str(self.process_id)]
        subprocess.run(command, check=True, capture_output=True)
