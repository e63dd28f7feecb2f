"""The `kbatch` command. The commands themselves are in kbatch/commands and load when they are called."""

import sys


def main() -> None:
    """Run the command line. Exit status: 0 done, 1 the data or the machine is at fault, 2 the call is."""
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
    except ImportError as error:
        print(f"kbatch: no module {error.name!r}: pip install 'kbatch[cli]'", file=sys.stderr)
        sys.exit(2)
    from kbatch.commands import kbatch

    kbatch(prog_name="kbatch")


if __name__ == "__main__":
    main()
