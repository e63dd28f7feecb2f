"""What to say where the installed pyspark is older than a function needs."""

import pyspark


def needs_pyspark(version: str, what: str) -> ImportError:
    """Return the error of a function that needs a newer pyspark than there is."""
    return ImportError(
        f"{what} needs pyspark {version} or newer; installed is pyspark {pyspark.__version__}: "
        f"pip install 'pyspark>={version},<5'"
    )
