"""The snippets and examples of docs/reference/spark.md run as shown."""

import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from examples import pipeline
from oplog_kit.command.flags import flags_of
from oplog_sync.settings import JobSettings
from oplog_sync.source.columns import full_schema
from oplog_sync.source.options import OPTION_NAMES
from tests.kits.agents.agent import Agent
from tests.kits.clients.restart import agent_on
from tests.kits.contract.wire import wait_until
from tests.kits.documents import pages
from tests.kits.servers.ports import free_port
from tests.kits.spark.helpers import append, live, log, operation

DOCS = pages.SPARK.read_text()
COMMANDS = pages.COMMANDS.read_text()


def test_the_snippets_run_in_their_order_and_again_after_the_agent_was_restarted(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    append(
        tmp_path / "oplog.db", [operation("insert", "video", "1"), operation("insert", "user", "1")]
    )
    # Each run writes four operations on videos. The stream continues at its checkpoint.
    for run in (1, 2):
        names: dict[str, Any] = {"spark": spark}
        with Agent(tmp_path) as agent:
            for snippet in re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL):
                # A path in an option is the reader's: Java does not follow this process to another
                # folder.
                text = re.sub("""["']oplog.db["']""", repr(str(tmp_path / "oplog.db")), snippet)
                for name in ("checkpoint", "checkpoint-of-mirror"):
                    text = text.replace(f'"{name}"', repr(str(tmp_path / name)))
                exec(text, names)
            assert agent.stop() == 0
        if run == 1:  # the second one goes on without a copy
            assert "video/1" in names["mirror"]
            states = spark.read.format("oplog").option("store", str(tmp_path / "oplog.db")).load()
            live = [row.key for row in states.where("event != 'delete'").collect()]
            assert names["mirror"].keys() <= set(live)
        spark.catalog.dropTempView("oplog_states")
        spark.streams.removeListener(names["listener"])
        assert {tuple(row) for row in spark.table("counts").collect()} == {
            ("video", 4 * run - 3),
            ("user", 1),
        }
        written = [entry.event for entry in log(tmp_path / "oplog.db", after=2)]
        assert written == ["update", "insert", "update", "delete"] * run


def test_every_flag_option_and_column_is_in_the_documentation() -> None:
    undocumented = {flag.name for flag in flags_of(JobSettings) if f"`{flag.name}" not in COMMANDS}
    names = {*OPTION_NAMES, *full_schema().fieldNames()}
    assert undocumented | {name for name in names if f"`{name}`" not in DOCS} == set()


@pytest.mark.parametrize("through", ["store", "agent"])
def test_the_streaming_example_continues_at_its_position(
    spark: SparkSession, tmp_path: Path, through: str
) -> None:
    store = tmp_path / "oplog.db"
    port = free_port()
    with agent_on(port, tmp_path) as agent:
        source = (
            {"store": str(store), "start": "oldest"}
            if through == "store"
            else {"agent": agent.url, "start": "0"}
        )
        assert (
            agent.post(
                [
                    operation("insert", "video", str(n), "2020-01-01T00:00:00Z", "a", "b")
                    for n in range(10)
                ]
            )
            == 200
        )
        pipeline.run(spark, source, tmp_path / "out", once=True)
        assert agent.stop() == 0
    with agent_on(port, tmp_path) as agent:
        assert agent.post([operation("delete", "video", str(n)) for n in range(4)]) == 200
        pipeline.run(spark, source, tmp_path / "out", once=True)
        tables = pipeline.Tables(spark, tmp_path / "out")
        objects = tables.read("objects", pipeline.OBJECTS)
        assert {f"{row.type}/{row.id}" for row in objects.collect()} == live(store).keys()
        hourly = (
            tables.read("hourly", pipeline.HOURLY).groupBy("parent").sum("operations").collect()
        )
        assert {tuple(row) for row in hourly} == {("a", 10), ("b", 10), (None, 4)}
        again = tables.batch
        pipeline.update(tables, objects, again)  # a batch that is repeated
        assert tables.batch == again


@pytest.fixture
def own_signals(spark: SparkSession) -> Iterator[None]:
    """Restore the signal handler and the log level that the program sets in this process."""
    handler = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, handler)
    spark.sparkContext.setLogLevel("OFF")


@pytest.mark.usefixtures("own_signals")
def test_the_pipeline_ends_quietly_with_ctrl_c_and_names_a_missing_agent(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    port, out = free_port(), tmp_path / "out"
    arguments = ["--agent", f"http://127.0.0.1:{port}", "--out", str(out)]
    for number in range(2):

        def press_ctrl_c(wanted: Path = out / f"checkpoint/commits/{number}") -> None:
            wait_until(wanted.exists)
            os.kill(os.getpid(), signal.SIGINT)

        with agent_on(port, tmp_path) as agent:
            assert agent.post(operation("insert", "video", str(number))) == 204
            waiting = threading.Thread(target=press_ctrl_c)
            waiting.start()
            assert pipeline.main(arguments) == 0
            waiting.join()
            assert agent.stop() == 0
    tables = pipeline.Tables(spark, out)
    assert {row.id for row in tables.read("objects", pipeline.OBJECTS).collect()} == {"0", "1"}
    assert "Traceback" not in capfd.readouterr().err
    assert pipeline.main([*arguments, "--once", "--retry-for", "1ms"]) == 1
    told = capfd.readouterr().err
    assert (
        f"pipeline: agent http://127.0.0.1:{port}: it does not answer: [Errno 111] Connection "
        "refused; asked again for 1 ms (option retryFor)\n" in told
    )
    assert "Traceback" not in told
