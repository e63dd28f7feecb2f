"""The data source `kbatch-segments`, where Spark finds it by itself, as pyspark_kbatch says."""

from contextlib import suppress

try:
    from kbatch.spark.segments import SegmentDataSource as DefaultSource
except Exception as error:  # no error may end Spark's lookup
    with suppress(Exception):  # pyspark 3 has no data sources in Python
        from pyspark_kbatch import unusable

        DefaultSource = unusable(__name__, "kbatch-segments", error)  # type: ignore[misc]
