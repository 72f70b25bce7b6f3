"""Tables made from an oplog. Spark finds the source by the package ``pyspark_oplog``."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table
def operations() -> DataFrame:
    """Every object once, then each new operation. A run appends those since the last run."""
    source = spark.readStream.format("oplog").option("agent", spark.conf.get("oplog.agent"))
    return source.option("start", "0").load()


@dp.materialized_view
def inserts_by_type() -> DataFrame:
    """The number of inserts of each type, counted anew in each run."""
    inserts = spark.read.table("operations").where("event = 'insert'")
    return inserts.groupBy("type").count()
