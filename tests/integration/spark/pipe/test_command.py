"""``oplog-pipe spark`` as its page shows it: its log, its status, and its end by a signal."""

import json
from pathlib import Path
from typing import Any

import httpx
import psycopg
import yaml

from tests.integration.spark.pipe.pipes import operation, table
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.clock.waiting import attempts
from tests.kits.documents import pages
from tests.kits.documents.snippets import snippets
from tests.kits.pipe.processes import PipeFolder
from tests.kits.processes.logged import LoggedProcess
from tests.kits.servers.ports import free_port
from tests.kits.servers.postgres import PostgresServer


def the_page() -> tuple[dict[str, Any], str, str]:
    """Return the first settings and the commands of the page.

    tests/soak runs the command with spark-submit, and test_tables.py the other settings.
    """
    yaml_, commands, _, submit = (each.code for each in snippets(pages.OPERATE_PIPE_SPARK))
    assert submit.startswith("spark-submit ")
    validate, command = commands.splitlines()
    return yaml.safe_load(yaml_), validate, command


def test_a_pipe_on_spark_runs_until_a_signal_and_goes_on_after_it(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    url = postgres.new_database()
    (tmp_path / "agent").mkdir()
    settings, validate, command = the_page()
    (tmp_path / "shape.py").write_text("def shape(m):\n    m.data = {'n': m.id}\n    return m\n")
    listen = f"127.0.0.1:{free_port()}"
    checkpoint = str(tmp_path / "checkpoint")
    with Agent(tmp_path / "agent") as agent:
        (sink,) = settings.pop("sinks")
        assert sink.pop("url").startswith("postgresql://oplog@localhost/")
        sink |= {"url": url, "transforms": ["shape:shape"]}
        assert settings.pop("sources") == [{"agents": ["http://localhost:8042"]}]
        folder = PipeFolder(tmp_path, [agent.url], [sink], **settings, listen=listen)
        assert validate == "oplog-pipe validate --spark -f pipe.yaml"
        assert "postgres can be opened" in folder.command("validate", "--spark")
        assert command == "oplog-pipe spark -f pipe.yaml --checkpoint checkpoint"
        assert agent.post([operation("insert", n) for n in range(3)]) == 200
        flags = ["--checkpoint", checkpoint, "--master", "local[2]"]
        with LoggedProcess(
            ["-m", "oplog_pipe", "spark", "-f", str(folder.settings), *flags]
        ) as process:
            process.wait_log(f"status at http://{listen}/status")
            for _ in attempts(2 * DEADLINE):
                status = httpx.get(f"http://{listen}/status").json()
                if status["sinks"][0]["written"] == 3:
                    break
            metrics = httpx.get(f"http://{listen}/metrics").text
            assert 'oplog_pipe_sink_written_total{sink="table"} 3.0' in metrics
            assert "\noplog_pipe_log_" not in metrics  # only the descriptions
            shown = folder.command("status")
            assert "log: none, the pipe is on Spark" in shown
            assert json.loads(folder.command("status", "--json"))["live"] is True
            assert process.stop() == 0
            assert process.log[-1].endswith("oplog_pipe: stopped\n")
            assert process.count("the copy of system/oplog is complete") == 1
        assert [row[-1] for row in table(url, "objects")] == [{"n": str(n)} for n in range(3)]
        with psycopg.connect(url) as connection:
            connection.execute("ALTER TABLE objects ADD CONSTRAINT few CHECK (id < 'a/5')")
        # With --max-operations 1 the first of them is a batch of its own.
        assert agent.post([operation("insert", 3), operation("insert", 7)]) == 200
        flags = ["--checkpoint", checkpoint, "--available-now", "--max-operations", "1"]
        said = folder.command("spark", *flags, code=4)
        assert "the copy of system/oplog is complete" not in said
        assert "sink 'table' has ended, and the other sinks go on" in said
        assert 'violates check constraint "few"' in said
        assert "Traceback" not in said
        assert [row[-1] for row in table(url, "objects")] == [{"n": str(n)} for n in range(4)]
