"""The data source `kbatch`, where Spark finds it by itself.

Spark imports every top-level module named pyspark_* and takes its DefaultSource. A module that raises at
import hides all other data sources, so neither this one nor pyspark_kbatch_segments does: if kbatch cannot be
imported, the use of its formats says why.
"""

from contextlib import suppress
from typing import Any


def unusable(module: str, form: str, reason: Exception) -> Any:
    """Return the DefaultSource of a module whose use raises `reason`."""
    from pyspark.sql.datasource import DataSource

    def refuse(source: object, options: dict[str, str]) -> None:
        raise reason

    # it is pickled by these names, as `reason` may need what cannot be imported
    members = {"__module__": module, "name": classmethod(lambda cls: form), "__init__": refuse}
    return type("DefaultSource", (DataSource,), members)


try:
    from kbatch.spark.data_source import KbatchDataSource as DefaultSource
except Exception as error:  # no error may end Spark's lookup
    with suppress(Exception):  # pyspark 3 has no data sources in Python
        DefaultSource = unusable(__name__, "kbatch", error)  # type: ignore[misc]
