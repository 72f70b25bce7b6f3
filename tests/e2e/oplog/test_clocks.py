"""Wrong clocks and restored copies: only ids of other histories bring ``reset``."""

import os
import shutil
import sys
from pathlib import Path

from tests.e2e.oplog.append_process import appender
from tests.e2e.oplog.histories import (
    assert_accepted,
    assert_reset,
    ids_of,
    names,
    replication_ids,
    write,
)
from tests.kits.agents.agent import DEADLINE, Agent, NewAgent
from tests.kits.agents.streams import ByteStream, ms_of, offset_of, operation
from tests.kits.clock.faketime import FakeTime
from tests.kits.clock.moved import MovedAgent, MovedClock
from tests.kits.processes.forked import run


def new_epoch(folder: Path, clock: MovedClock) -> None:
    run(
        [sys.executable, *MovedAgent.program, "--new-epoch", "--store", str(folder / "oplog.db")],
        check=True,
        timeout=DEADLINE,
        capture_output=True,
        env={**os.environ, **clock.environ},
    )


def test_a_replication_interrupted_in_a_log_that_was_set_aside_brings_reset(
    tmp_path: Path,
) -> None:
    clock = MovedClock(tmp_path)
    with MovedAgent(tmp_path, environ=clock.environ) as agent:
        write(agent, *names("a", 3))
        clock.move(3600)
        foreign = write(agent, *names("b", 3))
        times = {str(ms_of(event.id)) for event in foreign}
        assert times < replication_ids(agent)
        clock.set(0)
        assert agent.stop() == 0
    new_epoch(tmp_path, clock)
    objects = names("a", 3) + names("b", 3)
    with MovedAgent(tmp_path, environ=clock.environ) as agent:
        own = replication_ids(agent)
        assert_reset(agent, times, objects)
        log = write(agent, *names("c", 3))
        own |= replication_ids(agent) | {str(ms_of(event.id)) for event in log}
        assert_reset(agent, times, objects + names("c", 3))
        assert_accepted(agent, own)
        clock.move(7200)  # past the times that the old log used
        own |= {str(ms_of(event.id)) for event in write(agent, *names("d", 3))}
        assert_reset(agent, times, objects + names("c", 3) + names("d", 3))
        assert_accepted(agent, own | replication_ids(agent))


def test_replication_ids_given_out_after_the_copy_that_was_restored_bring_reset(
    tmp_path: Path,
) -> None:
    store, copy = tmp_path / "oplog.db", tmp_path / "copy.db"
    with Agent(tmp_path) as agent:
        kept = write(agent, *names("a", 3))
        kept_times = replication_ids(agent)
        assert agent.stop() == 0
    shutil.copy(store, copy)
    with Agent(tmp_path) as agent:
        lost = write(agent, *names("b", 5))
        lost_times = {str(ms_of(event.id)) for event in lost}
        assert replication_ids(agent) == kept_times | lost_times
        assert agent.stop() == 0
    shutil.copy(copy, store)
    with Agent(tmp_path) as agent:
        assert_reset(agent, lost_times, names("a", 3))
        assert_accepted(agent, kept_times)
        gone_on = write(agent, *names("c", 4))
        assert_reset(agent, lost_times, names("a", 3) + names("c", 4))
        assert_accepted(agent, [*kept_times, *ids_of(kept), *replication_ids(agent)])
        for lost_time in lost_times:  # a person asks for the changes since a time
            with ByteStream(agent, query={"since": lost_time}) as stream:
                *states, _ = stream.until_live()
            assert [state.operation["id"] for state in states] == names("c", 4)
        assert agent.stop() == 0
    with Agent(tmp_path) as agent:
        assert_reset(agent, lost_times, names("a", 3) + names("c", 4))
        assert_accepted(
            agent, [*kept_times, *ids_of(kept), *ids_of(gone_on[:-1]), *replication_ids(agent)]
        )


def test_ids_given_out_after_a_clock_went_back_behind_the_opening_are_known(tmp_path: Path) -> None:
    clock = MovedClock(tmp_path)
    with MovedAgent(tmp_path, environ=clock.environ) as agent:
        write(agent, *names("a", 3))
        assert agent.stop() == 0
    clock.set(500)
    with MovedAgent(tmp_path, "--capped-collection-size", "4096", environ=clock.environ) as agent:
        clock.set(1)
        assert agent.status()["clock"]["waiting"] == ["times", "removals"]
        clock.move(61)
        assert agent.status()["clock"]["waiting"] == ["removals"]
        log = write(agent, *names("b", 5))
        write(agent, *names("c", 40))
        assert offset_of(agent.status()["store"]["oldest_id"]) > offset_of(log[-1].id)
        given_out = [*ids_of(log), *(str(ms_of(event.id)) for event in log)]
        assert_accepted(agent, given_out)
        assert agent.stop() == 0
    with MovedAgent(tmp_path, environ=clock.environ) as agent:
        assert_accepted(agent, given_out)


def test_a_start_with_a_clock_of_1970_forgets_nothing_about_copies(tmp_path: Path) -> None:
    store, copy = tmp_path / "oplog.db", tmp_path / "copy.db"
    with Agent(tmp_path) as agent:
        write(agent, *names("a", 3))
        assert agent.stop() == 0
    shutil.copy(store, copy)
    with Agent(tmp_path) as agent:
        lost_times = {str(ms_of(event.id)) for event in write(agent, *names("b", 3))}
        assert agent.stop() == 0
    shutil.copy(copy, store)
    with Agent(tmp_path) as agent:
        write(agent, *names("c", 3))
        assert agent.stop() == 0
    clock = FakeTime(tmp_path, ahead=-50 * 365 * 86_400)
    with NewAgent(tmp_path, environ=clock.environ) as agent:
        assert_reset(agent, lost_times, names("a", 3) + names("c", 3))


def test_a_file_renamed_over_the_file_of_a_running_agent_brings_live_consumers_reset(
    tmp_path: Path,
) -> None:
    """The other file continues behind the consumers' offset: the offset alone shows nothing."""
    store, other = tmp_path / "oplog.db", tmp_path / "other.db"
    with Agent(tmp_path) as agent:
        write(agent, *names("a", 3))
        assert agent.stop() == 0
    shutil.copy(store, other)
    with appender(other) as process:
        for name in names("other", 12):
            process.append([operation("insert", name)])
    with Agent(tmp_path) as agent, ByteStream(agent) as stream:
        lost = write(agent, *names("mine", 3))
        assert stream.take(3) == lost
        for end in ("-wal", "-shm"):
            store.with_name(store.name + end).unlink()
        other.rename(store)
        reset, *states, _ = stream.until_live()
        assert (reset.event, reset.id) == ("reset", "1")
        assert [state.operation["id"] for state in states] == names("a", 3) + names("other", 12)
        assert agent.post(operation("insert", "later")) == 204
        (later,) = stream.take(1)
        assert (later.operation["id"], offset_of(later.id)) == ("later", 16)
        assert_reset(agent, ids_of(lost), [*names("a", 3), *names("other", 12), "later"])


def test_an_older_copy_renamed_over_the_file_of_a_running_agent_knows_the_times_it_lacks(
    tmp_path: Path,
) -> None:
    store, copy = tmp_path / "oplog.db", tmp_path / "copy.db"
    with Agent(tmp_path) as agent:
        write(agent, *names("a", 3))
        assert agent.stop() == 0
    shutil.copy(store, copy)
    with Agent(tmp_path) as agent, ByteStream(agent) as stream:
        lost_times = {str(ms_of(event.id)) for event in write(agent, *names("b", 3))}
        for end in ("-wal", "-shm"):
            store.with_name(store.name + end).unlink()
        copy.rename(store)
        stream.until_live()
        assert_reset(agent, lost_times, names("a", 3))
        write(agent, *names("c", 3))
        assert_reset(agent, lost_times, names("a", 3) + names("c", 3))
