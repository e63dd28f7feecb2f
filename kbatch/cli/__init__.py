"""The `kbatch` command. Its commands are modules here, loaded when called."""

import sys

from kbatch.distribution import pip_install


def main() -> None:
    """Run the command line. Exit status: 0 success, 1 faulty data or machine, 2 faulty call."""
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
    except ImportError as error:
        print(f"kbatch: no module {error.name!r}; {pip_install('cli')}", file=sys.stderr)
        sys.exit(2)
    from kbatch.cli.commands import kbatch

    kbatch(prog_name="kbatch")
