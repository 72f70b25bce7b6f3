"""The project in examples/pipelines, run with the command of docs/operate/spark.md."""

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from oplog_sync.classes import SPARK
from tests.kits.agents.agent import Agent
from tests.kits.documents import pages
from tests.kits.documents.snippets import snippets
from tests.kits.paths import ROOT
from tests.kits.spark.helpers import operation

(COMMAND,) = [
    each.code for each in snippets(pages.OPERATE_SPARK) if each.code.startswith("spark-pipelines")
]
# Fewer compiled queries: the tests' data is small. With a folder for Spark's configuration, Java
# would map no classes: class_data.py.
QUICK = """
  spark.sql.codegen.wholeStage: "false"
  spark.sql.codegen.factoryMode: NO_CODEGEN
  spark.sql.shuffle.partitions: "1"
"""


# Spark gives a worker in Python 10 s to start. On a busy machine one may need more.
LATE = "Timed out while waiting for the Python worker to connect back"
ATTEMPTS = 3


def rows(table: Path) -> list[dict[str, object]]:
    return [row for each in table.glob("*.parquet") for row in parquet.read_table(each).to_pylist()]


def test_the_project_reads_the_oplog_into_tables(tmp_path: Path) -> None:
    for name in ("grpc", "grpc_status", "zstandard"):
        pytest.importorskip(name, reason=f"{name} is missing: install the group `dev`")
    project = shutil.copytree(ROOT / "examples/pipelines", tmp_path / "pipelines")
    with Agent(tmp_path) as agent:
        spec = project / "spark-pipeline.yaml"
        text = spec.read_text().replace("/tmp/oplog-pipeline", str(tmp_path / "storage"))
        text = text.replace("configuration:\n", f"configuration:{QUICK}")
        spec.write_text(text.replace("http://localhost:8042", agent.url))
        for n in range(3):
            assert agent.post(operation("insert", "video", str(n))) == 204
        assert agent.post(operation("insert", "user", "0")) == 204
        for _ in range(ATTEMPTS):  # a run goes on where the last one has ended
            done = subprocess.run(
                ["sh", "-ec", COMMAND],
                cwd=project,
                env={
                    **os.environ,
                    "PATH": f"{SPARK / 'bin'}{os.pathsep}{os.environ['PATH']}",
                    "PYSPARK_PYTHON": sys.executable,
                    "PYTHONPATH": str(ROOT),
                    "SPARK_DRIVER_MEMORY": "512m",
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "SPARK_TESTING": "1",  # the server takes a free port
                },
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode == 0 or LATE not in done.stderr:
                break
        assert agent.stop() == 0
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Run is COMPLETED." in done.stdout + done.stderr
    found = rows(project / "spark-warehouse/operations")
    assert Counter(row["key"] for row in found) == Counter(
        ["video/0", "video/1", "video/2", "user/0"]
    )
    counts = rows(project / "spark-warehouse/inserts_by_type")
    assert {row["type"]: row["count"] for row in counts} == {"video": 3, "user": 1}
