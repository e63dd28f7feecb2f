"""kbatch beside its peers in the same run: `python -m benchmarks` measures all and writes docs/benchmarks.md
and a page for each group.
"""
