"""Run `kbatch`: `python -m kbatch`."""

from kbatch.cli import main

main()
