"""A client of Spark Connect reads and streams the oplog, and registers nothing."""

import json
import subprocess
import sys
from pathlib import Path

from tests.kits.spark.helpers import append, operation

PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
from pyspark.sql.connect.session import SparkSession as RemoteSession

url, store, folder = sys.argv[1:]
spark = SparkSession.builder.remote(url).getOrCreate()
states = spark.read.format("oplog").option("store", store).load()
operations = spark.readStream.format("oplog").options(store=store, start="oldest").load()
writer = operations.writeStream.format("memory").queryName("found").trigger(availableNow=True)
query = writer.option("checkpointLocation", f"{folder}/checkpoint").start()
query.awaitTermination()
print(json.dumps([
    isinstance(spark, RemoteSession),
    sorted(row.key for row in states.collect()),
    [row.event for row in spark.table("found").orderBy("offset").collect()],
]))
spark.stop()
"""


def test_a_client_of_spark_connect_reads_and_streams_without_registering_the_source(
    connect_url: str, tmp_path: Path
) -> None:
    store = tmp_path / "oplog.db"
    append(store, [operation("insert", "video", str(n)) for n in range(3)])
    append(store, [operation("delete", "video", "0")])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, connect_url, str(store), str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout) == [
        True,
        ["video/0", "video/1", "video/2"],
        ["insert", "insert", "insert", "delete"],
    ]
