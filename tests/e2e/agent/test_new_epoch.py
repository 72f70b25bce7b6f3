"""`--new-epoch` on the embedded store."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kits.agents.agent import Agent
from tests.kits.agents.runs import (
    a_folder,
    a_newer_schema,
    another_program,
    no_sqlite,
    nothing,
    refusal,
    run,
)
from tests.kits.contract.wire import RESET, Target, id_of, operation, said


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda path: None, "there is no store at"),
        (nothing, "there is no store at"),
        (Path.touch, "holds no log"),
        (a_folder, "cannot be opened"),
        (no_sqlite, "no SQLite file"),
        (another_program, "not an oplog store"),
        (a_newer_schema, "version 99"),
    ],
)
def test_a_new_epoch_needs_a_log_and_creates_none(
    tmp_path: Path, prepare: Callable[[Path], None], words: str
) -> None:
    path = tmp_path / "folder" / "oplog.db"
    path.parent.mkdir()
    prepare(path)
    before = path.read_bytes() if path.is_file() else None
    sentence = refusal("--new-epoch", "--store", path)
    assert str(path) in sentence
    assert "--store" in sentence
    assert words in sentence
    assert (path.read_bytes() if path.is_file() else None) == before
    assert before is not None or not path.is_file()


def test_a_new_epoch_while_an_agent_runs_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        target = Target.of(agent)
        with target.follow() as stream:
            target.store(operation("insert", "a", "thing"))
            sentence = refusal("--new-epoch", "--store", tmp_path / "oplog.db")
            assert "stop the agent" in sentence
            assert str(tmp_path / "oplog.db") in sentence
            target.store(operation("insert", "b", "thing"))
            assert [said(block) for block in stream.take(2)] == [("insert", "a"), ("insert", "b")]
        assert target.status()["status"] == "OK"
        agent.kill()
    assert (
        run("--new-epoch", "--store", tmp_path / "oplog.db").returncode == 0
    )  # with the -wal and -shm of the killed agent
    with Agent(tmp_path) as agent, Target.of(agent).follow("0") as stream:
        assert [said(block)[1] for block in stream.until("live")] == ["", "a", "b", ""]


def test_a_new_epoch_of_an_empty_log_sets_nothing_aside_and_says_so(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        assert agent.stop() == 0
    for _ in range(2):
        ended = run("--new-epoch", "--store", tmp_path / "oplog.db")
        assert (ended.returncode, ended.stderr) == (0, "")
        assert "after offset 0; the old one was empty" in ended.stdout
        assert "set aside" not in ended.stdout


def test_a_new_epoch_sets_the_log_aside_and_every_consumer_starts_anew(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        target = Target.of(agent)
        with target.follow() as stream:
            target.store(operation("insert", "a", "thing"), operation("insert", "b", "thing"))
            target.store(operation("delete", "b", "thing"))
            old = [id_of(block) for block in stream.take(3)]
        with target.follow("0") as stream:
            *_, state, live = [id_of(block) for block in stream.until("live")]
        assert agent.stop() == 0

    ended = run("--store", tmp_path / "oplog.db", "--new-epoch")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "set aside" in ended.stdout

    with Agent(tmp_path) as agent:
        target = Target.of(agent)
        for start in (*old, live, state):
            with target.follow(start) as stream:
                assert stream.block() == RESET
                assert [said(block) for block in stream.take(2)] == [("insert", "a"), ("live", "")]
        with target.follow("0") as stream:
            resume = id_of(stream.until("live")[-1])
            target.store(operation("insert", "c", "thing"), operation("insert", "d", "thing"))
            new = [id_of(block) for block in stream.take(2)]
        assert [int(id_[12:], 16) for id_ in (*old, *new)] == [1, 2, 3, 4, 5]
        assert new[0] > old[-1]
        with target.follow(new[0]) as stream:
            assert said(stream.block()) == ("insert", "d")
        with target.follow(resume) as stream:
            assert {said(block)[1] for block in stream.until("live")} >= {"c", "d", ""}
        with target.follow(old[-1]) as stream:
            assert stream.block() == RESET
