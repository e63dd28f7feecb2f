"""The `kbatch` command. Its commands are modules here, loaded when called."""

import os
import sys

from kbatch.distribution import pip_install


def main() -> None:
    """Run the command line. Exit status: 0 success, 1 faulty data or machine, 2 faulty call, 130 Ctrl-C."""
    _open_closed_outputs()
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
    except ImportError as error:
        print(f"kbatch: no module {error.name!r}; {pip_install('cli')}", file=sys.stderr)
        sys.exit(2)
    from kbatch.cli.commands import kbatch

    kbatch(prog_name="kbatch")


def _open_closed_outputs() -> None:
    """Let output go nowhere that the caller has closed (`>&-`). A connection would get its descriptor, and
    with that what other code writes there.
    """
    descriptor = os.open(os.devnull, os.O_RDWR)
    while descriptor <= 2:
        descriptor = os.dup(descriptor)
    os.close(descriptor)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")
