"""The job as a spark-submit application, on a cluster with the package from --py-files."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import oplog_sync
from oplog_sync.classes import SPARK
from tests.kits.agents.agent import DEADLINE
from tests.kits.paths import ROOT
from tests.kits.spark.class_data import class_data_options
from tests.kits.spark.cluster import EXECUTORS, Standalone, environ, packed
from tests.kits.spark.helpers import (
    StorePlace,
    append,
    dump_state,
    live,
    log,
    operation,
    row,
    write_dump,
)

T1, T2 = "2020-01-01T00:00:00.000Z", "2020-01-02T00:00:00.000Z"


def test_executors_of_a_cluster_compare_and_emit_and_the_users_own_configuration_of_spark_wins(
    standalone: Standalone, tmp_path: Path, plain_url: str
) -> None:
    store = StorePlace(plain_url, "plain").create().store
    append(store, [operation("insert", "video", str(n), T1) for n in range(1000)])
    rows = [row("video", str(n), T2) for n in range(100, 1100)]
    dump = write_dump(tmp_path / "dump.jsonl", rows)
    conf = tmp_path / "conf"
    conf.mkdir()
    quiet = Path(oplog_sync.__path__[0]) / "log4j2.properties"
    (conf / "log4j2.properties").write_text(
        re.sub("level = (error|off)", "level = info", quiet.read_text())
    )
    (conf / "spark-defaults.conf").write_text(f"""
        spark.driver.extraJavaOptions -Xlog:gc:file={tmp_path}/gc.log
        spark.executor.memory 512m
        spark.executor.cores 1
        spark.executor.extraJavaOptions {class_data_options()}
        spark.submit.pyFiles {packed(tmp_path / "oplog.zip")}
        spark.scheduler.maxRegisteredResourcesWaitingTime {DEADLINE:.0f}s
        spark.scheduler.minRegisteredResourcesRatio 1.0
        spark.sql.codegen.wholeStage false
        spark.sql.codegen.factoryMode NO_CODEGEN
        spark.python.sql.dataFrameDebugging.enabled false
    """)
    earlier = standalone.executors()
    settings = {
        "SPARK_CONF_DIR": str(conf),
        "SPARK_DRIVER_MEMORY": "512m",
        "SPARK_MASTER": standalone.master,
        "SPARK_PARTITIONS": "2",
    }
    path = f"{SPARK / 'bin'}{os.pathsep}{os.environ['PATH']}"
    run = subprocess.run(
        [
            str(ROOT / "deploy/spark/oplog-sync.sh"), "--mongo-url", plain_url,
            "--max-changes", "1000", str(dump),
        ],
        env={**environ(), **settings, "PATH": path}, cwd=tmp_path,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    # A master may start another executor while the application ends. It has run no task.
    logs = [(each / "stderr").read_text() for each in standalone.executors() - earlier]
    assert sum("Finished task" in text for text in logs) == EXECUTORS
    told = _told(run.stdout)
    assert [line.startswith("oplog-sync: ") for line in told] == [True] * 4 + [False] * 2
    assert told[-1].split()[:4] == ["video", "100", "900", "100"]
    assert "INFO SparkContext: Running Spark" in run.stderr
    assert (tmp_path / "gc.log").exists()
    assert live(store) == dump_state(rows)
    assert len(log(store)) == 2100


def _told(output: str) -> list[str]:
    """Return the lines of the job, without its progress. spark-submit joins both outputs."""
    progress = "oplog-sync: read ", "oplog-sync: emitted "
    return [line for line in output.splitlines() if not line.startswith(progress)]


_JAVA_SAYS = (
    "WARNING: Using incubator modules",
    "Using Spark's default log4j profile",
    "NOTE: Picked up JDK_JAVA_OPTIONS",
)


def test_under_spark_submit_the_jobs_lines_stand_alone_and_a_refusal_names_its_flag(
    tmp_path: Path,
) -> None:
    dump = write_dump(tmp_path / "dump.jsonl", [row("video", "1")])
    package = Path(oplog_sync.__path__[0])
    run = subprocess.run(
        [
            str(SPARK / "bin/spark-submit"), "--master", "local[1]", "--driver-memory", "512m",
            str(package / "__main__.py"), "--store", "oplog.db", "--create", "--max-changes", "0",
            str(dump),
        ],
        cwd=tmp_path,
        env={
            **environ(),
            "PYTHONPATH": str(package.parent),
            "PYSPARK_PYTHON": os.environ["PYSPARK_PYTHON"],
        },
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 6, run.stdout + run.stderr
    assert [line for line in run.stderr.splitlines() if not line.startswith(_JAVA_SAYS)] == []
    told = _told(run.stdout)
    assert [line.startswith("oplog-sync: ") for line in told] == [True] * 4
    assert told[-1] == (
        "oplog-sync: 1 object would be inserted or updated, more than --max-changes 0 allows, so "
        "nothing was emitted; "
        "if the dump is complete and right, give --max-changes 1"
    )


@pytest.mark.parametrize(
    ("given", "submitted", "job"),
    [
        (["--store", "a b", "dump"], [], ["--store", "a b", "dump"]),
        (
            [
                "--packages",
                "a:b:1",
                "--conf",
                "x=y z",
                "--master",
                "local[1]",
                "--",
                "--types",
                "a",
                "--",
                "-dump",
            ],
            ["--packages", "a:b:1", "--conf", "x=y z", "--master", "local[1]"],
            ["--types", "a", "--", "-dump"],
        ),
        (["--", "dump"], [], ["dump"]),
    ],
)
def test_the_script_passes_flags_before_the_separator_to_spark_submit(
    tmp_path: Path, given: list[str], submitted: list[str], job: list[str]
) -> None:
    fake = tmp_path / "spark-submit"
    fake.write_text('#!/bin/sh\nfor each do printf "%s\\n" "$each"; done\n')
    fake.chmod(0o755)
    told = subprocess.run(
        [str(ROOT / "deploy/spark/oplog-sync.sh"), *given],
        capture_output=True,
        text=True,
        check=True,
        env={**environ(), "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        cwd=ROOT,
    ).stdout.splitlines()
    application = str(Path(oplog_sync.__path__[0]) / "__main__.py")
    assert told[told.index(application) + 1 :] == job
    assert told[: told.index(application)] == [
        "--master", "local[*]", "--driver-memory", "4g", "--conf", "spark.ui.enabled=false",
        "--conf", "spark.sql.shuffle.partitions=64", *submitted,
    ]  # fmt: skip


def test_the_agent_loads_no_spark_and_neither_does_the_commands_help() -> None:
    for module in ("oplogd.server", "oplog_sync.cli", "pyspark_oplog"):
        code = (
            f"import sys, {module}; sys.exit('pyspark' in sys.modules or 'pyarrow' in sys.modules)"
        )
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
