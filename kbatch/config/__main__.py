"""Print docs/configuration.md: `python -m kbatch.config`."""

from kbatch.config.page import page

print(page(), end="")
