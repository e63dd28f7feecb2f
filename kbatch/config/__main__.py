"""`python -m kbatch.config` prints docs/configuration.md."""

from kbatch.config.page import page

print(page(), end="")
