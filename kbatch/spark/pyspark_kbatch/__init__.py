"""Lets Spark find the data source `kbatch` by itself.

Spark imports every top-level module named pyspark_* and takes its DefaultSource. One that raises at import
hides all other data sources, so this one never does: where kbatch cannot be imported there is just no
DefaultSource.
"""

try:
    from kbatch.spark.sink import KbatchDataSource
except Exception:  # whatever it is, it must not end Spark's look-up
    pass
else:

    class DefaultSource(KbatchDataSource):
        """`kbatch`."""
