"""The `kbatch` command. Its commands are modules here, loaded when called."""

import io
import os
import sys

from kbatch.distribution import pip_install


def main() -> None:
    """Run the command line. Exit status: 0 success, 1 faulty data or machine, 2 faulty call, 130 Ctrl-C."""
    _replace_closed_streams()
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
    except ImportError as error:
        print(f"kbatch: no module {error.name!r}; {pip_install('cli')}", file=sys.stderr)
        sys.exit(2)
    from kbatch.cli.commands import kbatch

    kbatch(prog_name="kbatch")


class _ClosedInput(io.RawIOBase):
    """Standard input that the caller has closed: Python has None for it, which libraries trip over."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        raise OSError("standard input is closed")


def _replace_closed_streams() -> None:
    """Let output go nowhere that the caller has closed (`>&-`), and input fail where it is read. A connection
    would get their descriptors, and with that what other code writes there.
    """
    descriptor = os.open(os.devnull, os.O_RDWR)
    while descriptor <= 2:
        descriptor = os.dup(descriptor)
    os.close(descriptor)
    sys.stdin = sys.stdin or io.TextIOWrapper(io.BufferedReader(_ClosedInput()))
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")
