"""Which pyspark is installed, and the error if it is older than a function needs."""

from __future__ import annotations

import re

import pyspark

# The oldest pyspark with what all of kbatch.spark needs.
OLDEST = "4.1"


class PysparkTooOldError(ImportError):
    """A function needs a newer pyspark than is installed."""


def check_pyspark(version: str, what: str) -> None:
    """Raise PysparkTooOldError if the installed pyspark is older than `what` needs."""
    if _numbers(pyspark.__version__) < _numbers(version):
        raise PysparkTooOldError(
            f"{what} needs pyspark {version} or newer; installed is pyspark {pyspark.__version__}: "
            f"pip install 'pyspark>={version},<5'"
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:2]))
