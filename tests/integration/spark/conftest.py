import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from oplog_sync.errors import SyncError
from oplog_sync.jvm import check_java, java_class
from oplog_sync.source import register
from tests.kits.mongo.fixtures import capped_url, plain_url
from tests.kits.servers.stores import StorePlace, new_place
from tests.kits.spark.class_data import class_data_options
from tests.kits.spark.cluster import Standalone, cluster
from tests.kits.spark.workers import worker_python

# Its clock skips and shows hours twice. No result may depend on it.
ZONE = "America/New_York"

# A query of few rows takes the least time if it is not compiled, its plan has few tasks, and Spark
# does not check the plan after each rule.
# `default_spark` and the commands keep the defaults, except that the cluster of test_submit.py
# compiles no query.
QUICK = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.dataFrameQueryContext.enabled": "false",
    "spark.sql.lightweightPlanChangeValidation": "false",
}

# What PySpark asks Java for in each call. A name without its package takes 1 ms.
ASKED = (
    "PythonSQLUtils",
    "PythonUtils",
    "SimplePythonFunction",
    "functions",
    "org.apache.hadoop.fs.Path",
    "org.apache.spark.sql.functions",
)

__all__ = ["capped_url", "plain_url"]


@pytest.fixture(scope="session", autouse=True)
def quick_java() -> None:
    """Let Java optimize less: short tests gain less time than the optimization takes.

    Let it verify no classes: the compilers of Spark's are trusted. The code of a whole run fills
    the small cache that it has with one compiler; then Java would drop code and compile it again.

    Let Spark's drivers map their classes. Both apply to this process and to all processes that
    tests start. Hadoop starts the program chmod for each file: let Java do that without a helper.
    """
    options = (
        "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m "
        "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote "
        "-Djdk.lang.Process.launchMechanism=VFORK"
    )
    os.environ.setdefault("JDK_JAVA_OPTIONS", options)
    os.environ.setdefault("SPARK_SUBMIT_OPTS", class_data_options())


@pytest.fixture(scope="session", autouse=True)
def quick_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let Spark fork its Python workers, also that of the commands that tests start.

    Clusters and pipelines start real ones.
    """
    with (
        worker_python(tmp_path_factory.mktemp("python")) as python,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("PYSPARK_PYTHON", str(python))
        yield


@pytest.fixture(scope="session")
def spark(
    quick_java: None, quick_python: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """Start one session for all tests: the start takes longer than most tests."""
    try:
        check_java()
    except SyncError as error:
        pytest.fail(f"the tests of oplog_sync run on Spark. {error}")
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "Asia/Kolkata")  # no result may depend on it
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config(map={**QUICK})
        # Python notes no lines; `default_spark` cannot change that.
        .config("spark.python.sql.dataFrameDebugging.enabled", "false")
        .config("spark.connect.grpc.binding.port", "0")
        .config("spark.driver.memory", "1g")
        .config(
            "spark.driver.extraJavaOptions",
            f"-Dderby.stream.error.file={tmp_path_factory.mktemp('derby')}/log",
        )
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", ZONE)  # of Java and of the Python workers
        session = builder.getOrCreate()
    time.tzset()  # a conversion of a time may have read the variable
    session.sparkContext.setLogLevel("OFF")
    _know_classes()
    register(session)
    yield session
    session.stop()


def _know_classes() -> None:
    """Let PySpark know the classes that it asks for most, so that it asks Java once for each."""
    java = SparkContext._jvm
    assert java is not None
    for name in ASKED:
        vars(java)[name] = getattr(java, name)


@pytest.fixture(scope="session")
def standalone(quick_java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    folder = tmp_path_factory.mktemp("cluster")
    with cluster(folder) as master:
        yield Standalone(master, folder / "worker")


@pytest.fixture(scope="session")
def connect_url(spark: SparkSession) -> Iterator[str]:
    """Return the address of the session's Java for clients of Spark Connect."""
    for name in ("grpc", "grpc_status", "zstandard"):
        pytest.importorskip(name, reason=f"{name} is missing: install the group `dev`")
    name = "org.apache.spark.sql.connect.service.SparkConnectService$"
    service = getattr(java_class(name), "MODULE$")
    context: Any = spark.sparkContext
    service.start(context._jsc.sc())
    yield f"sc://127.0.0.1:{service.localPort()}"
    service.stop(*(getattr(service, f"stop$default${number}")() for number in (1, 2)))


@pytest.fixture
def default_spark(spark: SparkSession) -> Iterator[SparkSession]:
    """Return the session with the defaults of users for plans and queries, and two partitions."""
    for name in QUICK:
        spark.conf.unset(name)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield spark
    for name, value in QUICK.items():
        spark.conf.set(name, value)


@pytest.fixture(params=["sqlite", "mongo-plain", "mongo-capped"])
def place(request: pytest.FixtureRequest) -> StorePlace:
    """Return an empty store of each kind.

    The server with the capped log is slow, so use few operations: see tests/kits/servers/mongo.py.
    """
    return new_place(request, request.param).create()
