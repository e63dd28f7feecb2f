"""Let Spark find the data source `kbatch` by itself.

Spark imports every top-level module named pyspark_* and takes its DefaultSource. A module that raises at
import hides all other data sources, so this one never does: if kbatch cannot be imported, its use says why.
"""

from contextlib import suppress

try:
    from kbatch.spark.data_source import KbatchDataSource
except Exception as error:  # no error may end Spark's lookup
    reason = error
    with suppress(Exception):  # pyspark 3 has no data sources in Python
        from pyspark.sql.datasource import DataSource

        class DefaultSource(DataSource):
            """The format `kbatch`, which cannot be used."""

            @classmethod
            def name(cls) -> str:
                return "kbatch"

            def __init__(self, options: dict[str, str]) -> None:
                raise reason
else:

    class DefaultSource(KbatchDataSource):  # type: ignore[no-redef]
        """The format `kbatch`."""
