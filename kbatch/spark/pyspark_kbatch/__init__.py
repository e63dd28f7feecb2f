"""Let Spark find the data source `kbatch` by itself.

Spark imports every top-level module named pyspark_* and takes its DefaultSource. A module that raises at
import hides all other data sources, so this one never does: if kbatch cannot be imported, there is no
DefaultSource.
"""

try:
    from kbatch.spark.data_source import KbatchDataSource
except Exception:  # no error may end Spark's lookup
    pass
else:

    class DefaultSource(KbatchDataSource):
        """The format `kbatch`."""
