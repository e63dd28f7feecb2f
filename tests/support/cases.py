"""Many small cases in one test, whose error names the case: each test by itself costs milliseconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def noted(*case: object) -> Iterator[None]:
    """Note the case with an error that ends the block."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"the case: {', '.join(map(str, case))}")
        raise
