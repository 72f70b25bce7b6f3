#!/bin/sh
# oplog-sync as a spark-submit application: the arguments are its own.
#   SPARK_DRIVER_MEMORY=8g deploy/spark/oplog-sync.sh --store /var/lib/oplogd/oplog.db --max-deletes 5% /dumps/
# PYSPARK_PYTHON names the Python that oplog is installed in with its extra sync, SPARK_MASTER where to run, SPARK_PARTITIONS in how many
# parts what is compared is split.
set -eu
PYSPARK_PYTHON=${PYSPARK_PYTHON:-python3}
export PYSPARK_PYTHON
application=$("$PYSPARK_PYTHON" -c 'import oplog_sync; print(oplog_sync.__path__[0])')/__main__.py
exec spark-submit \
	--master "${SPARK_MASTER:-local[*]}" \
	--driver-memory "${SPARK_DRIVER_MEMORY:-4g}" \
	--conf spark.ui.enabled=false \
	--conf "spark.sql.shuffle.partitions=${SPARK_PARTITIONS:-64}" \
	"$application" "$@"
