"""Spark's Java process, for which PySpark has no public name."""

from typing import Any

from pyspark.sql import SparkSession


def jvm(spark: SparkSession) -> Any:
    """Return the Java packages: ``jvm(spark).java.util.TimeZone`` is a Java class."""
    assert spark._jvm is not None
    return spark._jvm


def hadoop(spark: SparkSession) -> tuple[Any, Any]:
    """Return Hadoop's Java package and its configuration."""
    return jvm(spark).org.apache.hadoop, spark.sparkContext._jsc.hadoopConfiguration()
