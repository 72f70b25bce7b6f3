#!/bin/sh
# oplog-sync as a spark-submit application.
#   deploy/spark/oplog-sync.sh [FLAG ...] DUMP ...
#   deploy/spark/oplog-sync.sh [OPTION OF SPARK-SUBMIT ...] -- [FLAG ...] DUMP ...
# Examples:
#   SPARK_DRIVER_MEMORY=8g deploy/spark/oplog-sync.sh --store /var/lib/oplogd/oplog.db --max-deletes 5% /dumps/
#   deploy/spark/oplog-sync.sh --packages org.apache.hadoop:hadoop-aws:3.4.2 --conf spark.ui.enabled=true -- s3a://dumps/today/
# PYSPARK_PYTHON: the Python with oplog and its extra sync. SPARK_MASTER: URL of the Spark master.
# SPARK_PARTITIONS: number of partitions for the comparison. Options before -- override them.
set -eu
PYSPARK_PYTHON=${PYSPARK_PYTHON:-python3}
export PYSPARK_PYTHON
application=$("$PYSPARK_PYTHON" -c 'import oplog_sync; print(oplog_sync.__path__[0])')/__main__.py

# Put the application in the place of the first --, or before all arguments.
separator=
for argument do
	[ "$argument" != -- ] || separator=yes
done
if [ -z "$separator" ]; then
	set -- "$application" "$@"
else
	left=$#
	while [ "$left" -gt 0 ]; do
		argument=$1
		shift
		if [ "$argument" = -- ] && [ -n "$separator" ]; then
			argument=$application
			separator=
		fi
		set -- "$@" "$argument"
		left=$((left - 1))
	done
fi
exec spark-submit \
	--master "${SPARK_MASTER:-local[*]}" \
	--driver-memory "${SPARK_DRIVER_MEMORY:-4g}" \
	--conf spark.ui.enabled=false \
	--conf "spark.sql.shuffle.partitions=${SPARK_PARTITIONS:-64}" \
	"$@"
