"""The `kbatch` command. The commands are modules in here, and load when they are called."""

import sys


def main() -> None:
    """Run the command line. Exit status: 0 done, 1 the data or the machine is at fault, 2 the call is."""
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
    except ImportError as error:
        print(f"kbatch: no module {error.name!r}: pip install 'kbatch[cli]'", file=sys.stderr)
        sys.exit(2)
    from kbatch.cli.commands import kbatch

    kbatch(prog_name="kbatch")

