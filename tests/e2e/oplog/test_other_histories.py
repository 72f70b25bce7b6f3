"""An id of another history brings ``reset`` and every object, never silence."""

import shutil
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from tests.e2e.oplog.append_process import appender
from tests.e2e.oplog.histories import (
    assert_reset,
    assert_resumes,
    ids_of,
    names,
    replication_ids,
    write,
)
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.agents.streams import ByteStream, ms_of, offset_of, offsets, operation
from tests.kits.processes.forked import run

NEW_YEAR_2099 = int(datetime(2099, 1, 1, tzinfo=UTC).timestamp() * 1000)


def test_ids_given_out_after_the_copy_that_was_restored_bring_reset(tmp_path: Path) -> None:
    store, copy = tmp_path / "oplog.db", tmp_path / "copy.db"
    with Agent(tmp_path) as agent:
        kept = write(agent, *names("a", 10))
        assert agent.stop() == 0
    shutil.copy(store, copy)
    with Agent(tmp_path) as agent:
        lost = write(agent, *names("b", 12))
        assert agent.stop() == 0
    shutil.copy(copy, store)
    with Agent(tmp_path) as agent:
        assert_reset(agent, ids_of(lost), names("a", 10))  # beyond the head
        assert_resumes(agent, kept)
        gone_on = write(agent, *names("c", 20))
        assert offsets(gone_on) == list(range(11, 31))
        assert_reset(
            agent, ids_of(lost), names("a", 10) + names("c", 20)
        )  # offsets that other entries have now
        assert_resumes(agent, kept + gone_on)


def test_ids_of_a_store_that_was_deleted_bring_reset_for_ever(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        lost = write(agent, *names("a", 10))
        lost_ids = [*ids_of(lost), *replication_ids(agent)]
        assert len(lost_ids) == 10 + len({ms_of(event.id) for event in lost})
        assert agent.stop() == 0
    (tmp_path / "oplog.db").unlink()
    with Agent(tmp_path) as agent:
        assert_reset(agent, lost_ids, [])
        log = write(agent, *names("b", 5))
        assert_reset(agent, lost_ids, names("b", 5))
        log += write(agent, *names("c", 10))
        assert_reset(agent, lost_ids, names("b", 5) + names("c", 10))
        assert_resumes(agent, log)
        assert agent.stop() == 0
    with Agent(tmp_path, "--capped-collection-size", "4096") as agent:  # their places leave the log
        write(agent, *names("d", 100))
        assert offset_of(agent.status()["store"]["oldest_id"]) > 20
        assert_reset(agent, lost_ids, names("b", 5) + names("c", 10) + names("d", 100))


def test_after_a_clock_that_was_once_in_2099_a_new_epoch_brings_reset_and_the_present_time(
    tmp_path: Path,
) -> None:
    with Agent(tmp_path) as agent:
        before = write(agent, *names("a", 5))
        foreign = [*ids_of(before), *replication_ids(agent)]
        assert agent.stop() == 0
    with appender(tmp_path / "oplog.db", NEW_YEAR_2099) as future:
        for name in names("b", 3):
            future.append([operation("insert", name)])
    with Agent(tmp_path) as agent:
        assert [
            line
            for line in agent.log
            if "WARN" in line and "ahead of the clock" in line and "--new-epoch" in line
        ]
        after = write(agent, *names("c", 3))
        assert {ms_of(event.id) for event in after} == {
            NEW_YEAR_2099
        }  # a log's time does not run backwards
        with ByteStream(agent, before[-1].id) as stream:
            in_2099 = stream.take(6)
        assert_resumes(agent, before + in_2099)
        foreign += [
            *ids_of(in_2099),
            *(replication_ids(agent) - set(foreign)),
            str(NEW_YEAR_2099 + 1),
        ]
        assert str(NEW_YEAR_2099) in foreign
        assert agent.stop() == 0

    command = [sys.executable, "-m", "oplogd", "--new-epoch", "--store", str(tmp_path / "oplog.db")]
    run(command, check=True, timeout=DEADLINE, capture_output=True)

    objects = names("a", 5) + names("b", 3) + names("c", 3)
    with Agent(tmp_path) as agent:
        assert not [line for line in agent.log if "ahead" in line]
        assert_reset(agent, foreign, objects)
        began = time.time() * 1000
        log = write(agent, *names("d", 15))
        assert all(0 <= ms_of(event.id) - int(began) < DEADLINE * 1000 for event in log)
        assert offsets(log) == list(range(12, 27))
        assert_reset(agent, foreign, objects + names("d", 15))
        assert_resumes(agent, log)
        assert agent.stop() == 0
    with Agent(tmp_path, "--capped-collection-size", "4096") as agent:
        write(agent, *names("e", 100))
        assert_reset(agent, foreign, objects + names("d", 15) + names("e", 100))


def test_an_id_of_a_lost_history_brings_reset_also_after_its_place_has_left_the_log(
    tmp_path: Path,
) -> None:
    with Agent(tmp_path) as agent:
        kept = write(agent, *names("a", 5))
        assert agent.stop() == 0
    copy = (tmp_path / "oplog.db").read_bytes()
    with Agent(tmp_path) as agent:
        lost = write(agent, *names("lost", 5))
        assert agent.stop() == 0
    (tmp_path / "oplog.db").write_bytes(copy)
    with Agent(tmp_path, "--capped-collection-size", "4096") as agent:
        write(agent, *names("b", 100))
        assert offset_of(agent.status()["store"]["oldest_id"]) > 10
        assert_reset(agent, ids_of(lost), names("a", 5) + names("b", 100))
        with agent.follow(kept[-1].id) as stream:  # of this history: no reset
            assert {event.event for event in stream.take(100)} == {"insert"}


def test_nothing_is_acknowledged_while_the_store_file_of_a_running_agent_is_missing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "oplog.db"
    with Agent(tmp_path) as agent:
        log = write(agent, *names("a", 3))
        files = [path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))]
        for file in files:
            file.rename(file.with_name("aside-" + file.name))
        assert agent.post({"event": "insert", "type": "video", "id": "unsafe"}) == 503
        assert "the file is gone" in agent.status()["reason"]
        for file in reversed(files):  # the store comes last: nobody opens a part of it
            file.with_name("aside-" + file.name).rename(file)
        agent.wait_status(status="OK", queue_size=0)
        assert_resumes(agent, log)
        assert agent.stop() == 0
