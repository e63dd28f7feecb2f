"""Run `kbatch`: `python -m kbatch.cli`."""

from kbatch.cli import main

main()
