"""``oplog-pipe validate`` with agents and sinks that answer, refuse, or are unreachable."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from oplog_pipe.cli import main
from tests.kits.agents.agent import Agent
from tests.kits.pipe.settings_file import SettingsFile
from tests.kits.servers.postgres import PostgresServer

SINKS = """
class Sink:
    def __init__(self, error=None):
        self.error = error
    def open(self):
        if self.error:
            raise ValueError(self.error)
    def write(self, messages):
        raise AssertionError("validate writes nothing")
    def begin_copy(self, generation, source): ...
    def end_copy(self, generation, source): ...
    def close(self):
        with open("closed", "a") as file:
            file.write("closed\\n")
"""


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with Agent(tmp_path_factory.mktemp("agent"), "--password", "sEcret") as agent:
        yield agent


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SettingsFile:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sinks_of_validate.py").write_text(SINKS)
    return SettingsFile(tmp_path)


def validated(
    file: SettingsFile, text: str, capsys: pytest.CaptureFixture[str], *flags: str
) -> list[str]:
    """Return the exit code and the lines that are printed, without the folder."""
    code = main(["validate", *flags, "-f", str(file.write(text))])
    out, err = capsys.readouterr()
    return [str(code), *(out + err).replace(f"{file.path.parent}/", "").splitlines()]


def test_all_that_answer_are_told(
    agent: Agent, file: SettingsFile, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"""
dir: d
sources: [{{agents: ["{agent.url}"], password: sEcret}}]
sinks:
  - {{name: a, type: file, path: out.jsonl}}
  - {{name: b, type: "sinks_of_validate:Sink"}}
"""
    assert validated(file, text, capsys) == [
        "0",
        "# sink a: out.jsonl can be written",
        "# sink b: sinks_of_validate:Sink can be opened",
        f"# source system/oplog: {agent.url}/ops serves system/oplog",
    ]
    # Neither the folder of the pipe nor the file of a sink is touched.
    assert {*os.listdir(file.path.parent)} - {"__pycache__"} == {
        "pipe.yaml", "sinks_of_validate.py", "closed",
    }  # fmt: skip


def test_spark_reads_a_store_and_not_its_agents(
    file: SettingsFile, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """
name: p
dir: d
sources: [{agents: ["http://127.0.0.1:1"], store: oplog.db}]
sinks: [{name: t, format: parquet, path: t}]
"""
    assert validated(file, text, capsys, "--spark") == [
        "0",
        "# sink t: Spark writes parquet",
        "# source system/oplog: Spark reads the store, not its agents",
    ]


def test_every_problem_is_told_and_names_no_secret(
    agent: Agent, file: SettingsFile, capsys: pytest.CaptureFixture[str]
) -> None:
    nobody = "http://127.0.0.1:1"
    (file.path.parent / "text").write_text("")
    text = f"""
dir: d
sources:
  - {{agents: ["{agent.url}"], password: other}}
  - {{agents: ["{agent.url}", "{nobody}"], password: sEcret, log: no-topic}}
sinks:
  - {{name: a, type: file, path: text/out.jsonl}}
  - {{name: b, type: file, path: "."}}
  - {{name: c, type: "sinks_of_validate:Sink", options: {{error: "it is unreachable"}}}}
"""
    line = SINKS[: SINKS.index("raise ValueError")].count("\n") + 1
    code, *lines = validated(file, text, capsys)
    topic = "v1/namespaces/default/topics/no-topic/stream"
    assert code == "1"
    assert [line.removeprefix("oplog-pipe: ") for line in lines[:4]] == [
        "sink a: 'text' is no folder",
        f"sink b: '{file.path.parent}' is no file",
        f"sink c: ValueError in sinks_of_validate.py, line {line}",
        f"source system/oplog: {agent.url}/ops: reading needs the password: HTTP Basic"
        " authentication with any user name (HTTP 401); look at password",
    ]
    missing, away = lines[4:]
    assert f"source default/no-topic: {agent.url}/{topic}: " in missing
    assert missing.endswith("(HTTP 404)")
    assert f"source default/no-topic: {nobody}/{topic}: " in away
    assert "sEcret" not in "".join(lines)
    assert (file.path.parent / "closed").read_text() == "closed\n"


def test_a_table_that_no_row_fits_into_and_a_server_that_is_not_verified_are_told(
    agent: Agent, file: SettingsFile, postgres: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    url = postgres.new_database()
    postgres.run("CREATE TABLE narrow (id int, version int, source text)", url.rpartition("/")[2])
    # A name of another machine, which is this one.
    elsewhere = f"{url.replace('127.0.0.1', 'db.example.com')}?hostaddr=127.0.0.1"
    text = f"""
dir: d
sources: [{{agents: ["{agent.url}"], password: sEcret}}]
sinks:
  - {{name: a, type: postgres, url: "{url}", table: narrow, namespace: ^video$}}
  - {{name: b, type: postgres, url: "{elsewhere}"}}
"""
    code, *lines = validated(file, text, capsys)
    assert code == "1"
    assert lines[0] == (
        "# sink b: postgres can be opened; sslmode is prefer: the connection may be unencrypted,"
        " and the server's certificate is not verified; add sslmode=verify-full and sslrootcert"
        " to url"
    )
    place = 'table "narrow": '
    assert lines[2].split("; " + place) == [
        f"oplog-pipe: sink a: {place}it has no column timestamp",
        "it has no column data",
        "the column version is integer; it must be bigint",
        "the column id must be the primary key, or have a unique index",
    ]


def test_agents_with_different_stores_are_a_problem(
    file: SettingsFile, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folders = [tmp_path / "one", tmp_path / "other"]
    for each in folders:
        each.mkdir()
    with Agent(folders[0]) as one, Agent(folders[0]) as same, Agent(folders[1]) as other:
        text = f"""
dir: d
sources: [{{agents: ["{one.url}", "{same.url}", "{other.url}"]}}]
sinks: [{{name: a, type: file, path: out.jsonl}}]
"""
        code, *lines = validated(file, text, capsys)
        assert (code, len(lines)) == ("1", 5)
        assert lines[-1] == (
            f"oplog-pipe: source system/oplog: {one.url}/ops and {other.url}/ops have different"
            " stores; look at agents"
        )
