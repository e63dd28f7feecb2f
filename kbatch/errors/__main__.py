"""Print docs/errors.md: `python -m kbatch.errors`."""

from kbatch.errors.page import page

print(page(), end="")
