"""Print docs/metrics.md: `python -m kbatch.metrics`."""

from kbatch.metrics.page import page

print(page(), end="")
