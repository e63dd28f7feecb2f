"""`python -m kbatch.cli` is `kbatch`."""

from kbatch.cli import main

main()
