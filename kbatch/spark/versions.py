"""The error if the installed pyspark is older than a function needs."""

import pyspark


class PysparkTooOldError(ImportError):
    """A function needs a newer pyspark than is installed."""


def needs_pyspark(version: str, what: str) -> PysparkTooOldError:
    """Return the error of a function that needs a newer pyspark than is installed."""
    return PysparkTooOldError(
        f"{what} needs pyspark {version} or newer; installed is pyspark {pyspark.__version__}: "
        f"pip install 'pyspark>={version},<5'"
    )
