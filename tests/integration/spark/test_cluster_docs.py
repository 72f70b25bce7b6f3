"""The commands of docs/operate/spark.md, on a cluster whose Python lacks the package."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from oplog_sync.classes import SPARK
from tests.kits.agents.agent import Agent
from tests.kits.documents import pages
from tests.kits.documents.snippets import snippet_of, snippets
from tests.kits.spark.class_data import class_data_options
from tests.kits.spark.cluster import Standalone, environ, packed
from tests.kits.spark.helpers import operation

SUBMITS = [each.code for each in snippets(pages.OPERATE_SPARK) if "spark-submit" in each.code]


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Python with the libraries, but without an editable installation of the package."""
    folder = tmp_path_factory.mktemp("python")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = (folder / "lib").glob("*/site-packages")
    (site / "lent.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin/python"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the reader's folder, with a configuration for short runs."""
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(f"""
        spark.driver.memory 512m
        spark.executor.memory 512m
        spark.executor.cores 1
        spark.cores.max 1
        spark.executor.extraJavaOptions {class_data_options()}
        spark.sql.codegen.wholeStage false
        spark.sql.codegen.factoryMode NO_CODEGEN
        spark.ui.enabled false
    """)
    return tmp_path


def test_a_job_runs_with_each_way_to_send_the_package_and_continues_at_its_checkpoint(
    standalone: Standalone, folder: Path, bare_python: Path
) -> None:
    archive = packed(folder / "oplog.zip")
    zipfile.ZipFile(archive).extractall(folder / "libs")
    environment = {
        **environ(),
        "PYSPARK_PYTHON": str(bare_python),
        "SPARK_CONF_DIR": str(folder / "conf"),
        "PATH": f"{SPARK / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }
    assert len(SUBMITS) == 2
    with Agent(folder) as agent:
        job = snippet_of(pages.OPERATE_SPARK, "job.py")
        (folder / "job.py").write_text(job.replace("http://localhost:8042", agent.url))
        for number, command in enumerate(SUBMITS):
            assert agent.post(operation("insert", "video", str(number))) == 204
            done = subprocess.run(
                ["sh", "-ec", command.replace("spark://master:7077", standalone.master)],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            files = (folder / "tables/operations").glob("*.parquet")
            rows = [row for each in files for row in parquet.read_table(each).to_pylist()]
            assert sorted(row["id"] for row in rows) == [str(each) for each in range(number + 1)]
        assert agent.stop() == 0
