"""`python -m kbatch.errors` prints docs/errors.md."""

from kbatch.errors.page import page

print(page(), end="")
