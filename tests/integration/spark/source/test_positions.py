"""Where reads begin and end, in a store and through agents alike."""

import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from oplog_sync.errors import OptionError, SyncError
from oplog_sync.source import OplogDataSource
from oplog_sync.source.agent.log import AgentLog
from oplog_sync.source.columns import full_schema
from oplogd.model.event_id import Mark, format_id
from tests.integration.spark.source.streams import reader_of
from tests.kits.agents.agent import Agent
from tests.kits.spark.helpers import live, log, operation

SMALL_LOG = ("--capped-collection-size", "100KB")


class Log(NamedTuple):
    """An agent's log, and the options by which a test reads it."""

    agent: Agent
    store: Path
    options: dict[str, str]

    def post(self, first: int, count: int, event: str = "insert") -> None:
        ids = range(first, first + count)
        assert self.agent.post([operation(event, "video", str(n)) for n in ids]) == 200

    def moment(self) -> int:
        """Return a time in ms that lies between all operations before and all after this call."""
        newest = log(self.store)[-1].ms
        while time.time_ns() // 1_000_000 <= newest + 1:
            time.sleep(0.001)
        return newest + 1

    def ids(self) -> list[str]:
        return [format_id(Mark(entry.offset, entry.ms)) for entry in log(self.store)]

    def batch(self, **options: str) -> list[int]:
        source = OplogDataSource({**self.options, "table": "operations", **options})
        reader = source.reader(full_schema())
        batches: list[Any] = [batch for part in reader.partitions() for batch in reader.read(part)]
        return [number for batch in batches for number in batch["offset"].to_pylist()]

    def run(self, at: dict[str, Any] | None, **options: str) -> tuple[list[int], dict[str, Any]]:
        """Run a query for the present operations from an offset on. Return the rows and the end."""
        reader = reader_of({**self.options, **options})
        found: list[int] = []
        try:
            at = at or reader.initialOffset()
            reader.prepareForTriggerAvailableNow()
            limit = reader.getDefaultReadLimit()
            while (end := reader.latestOffset(at, limit)) is not at:
                for part in reader.partitions(at, end):
                    for batch in reader.read(part):
                        found += batch["offset"].to_pylist()
                at = end
        finally:
            reader.stop()
        return found, at


@pytest.fixture(params=["store", "agent"])
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    """A log that holds some hundred operations."""
    with Agent(tmp_path, *SMALL_LOG) as agent:
        store = tmp_path / "oplog.db"
        places = {"store": {"store": str(store)}, "agent": {"agent": agent.url}}
        yield Log(agent, store, places[request.param] | {"retryFor": "1ms"})


def test_a_start_counts_only_without_a_checkpoint(small: Log) -> None:
    small.post(0, 5)
    found, at = small.run(None, start="oldest")
    small.post(5, 5)
    moment = small.moment()
    small.post(10, 5)
    more, _ = small.run(at, start=str(moment))
    assert found + more == list(range(1, 16))
    assert small.run(None, start=str(moment))[0] == list(range(11, 16))


def test_windows_of_time_hold_each_operation_once(small: Log) -> None:
    moments = []
    for number in range(3):
        small.post(10 * number, 10)
        moments.append(str(small.moment()))
    windows = [small.batch(start="0" * 12 + "1", end=moments[0])]
    windows += [small.batch(start=a, end=b) for a, b in itertools.pairwise(moments)]
    assert windows == [list(range(1, 11)), list(range(11, 21)), list(range(21, 31))]
    found, at = small.run(None, start="oldest", end=moments[0])
    assert found == list(range(1, 11))
    found, at = small.run(at, end=moments[1], maxOperationsPerTrigger="3")
    assert found == list(range(11, 21))
    assert small.run(at)[0] == list(range(21, 31))


def test_a_time_to_come_is_a_start(small: Log) -> None:
    small.post(0, 3)
    later = small.moment() + 60_000
    reader = reader_of({**small.options, "start": str(later)})
    start = reader.initialOffset()
    small.post(3, 3)
    if "agent" in small.options:
        assert reader.latestOffset(start) is start
    assert small.batch(start=str(later)) == []
    reader.stop()


def test_an_end_before_the_start_is_empty(small: Log) -> None:
    small.post(0, 10)
    ids = small.ids()
    assert small.batch(start=ids[5], end=ids[2]) == []
    assert small.batch(start="oldest", end=ids[4]) == [1, 2, 3, 4, 5]
    assert small.batch(start=ids[4], end=ids[4]) == []
    assert small.batch(start="oldest", end=ids[0]) == [1]
    assert small.batch(end="1") == []


def test_operations_that_have_left_the_log_are_told(small: Log) -> None:
    moment = str(int(time.time() * 1000) - 60_000)
    _trim(small)
    with pytest.raises(OptionError, match=f"operations since {moment} have left the log"):
        small.batch(start=moment)
    oldest = small.ids()[0]
    assert small.batch(start=moment, onGap="states")[0] >= int(oldest[12:], 16)


def test_a_query_that_began_on_an_empty_log_is_told_of_operations_that_have_left(
    small: Log,
) -> None:
    reader = reader_of({**small.options, "start": "oldest"})
    empty = reader.initialOffset()
    reader.stop()
    _trim(small)
    with pytest.raises(SyncError, match="has left the log"):
        small.run(empty)
    reader = reader_of(small.options)
    if "agent" in small.options:
        with pytest.raises(SyncError, match="has left the log"):
            reader.latestOffset(empty)
    with pytest.raises(SyncError, match="has left the log"):
        reader.partitions(empty, {"id": small.ids()[-1]})
    reader.stop()
    found, _ = small.run(empty, onGap="states")
    # An agent does not know the offsets of states.
    assert len(found) == len(live(small.store))


def test_a_position_of_an_earlier_epoch_is_refused(tmp_path: Path) -> None:
    store = tmp_path / "oplog.db"
    begin = [sys.executable, "-m", "oplogd", "--store", str(store), "--new-epoch"]
    old: list[dict[str, Any]] = []
    for number in range(3):
        with Agent(tmp_path) as agent:
            places = ({"store": str(store)}, {"agent": agent.url})
            logs = [Log(agent, store, place | {"retryFor": "1ms"}) for place in places]
            for each, at in itertools.product(logs, old):
                with pytest.raises(SyncError, match=r"belongs to another log|has left the log"):
                    each.run(at)
            starts = [each.run(None, start="now")[1] for each in logs]
            logs[0].post(3 * number, 3)
            for each, start in zip(logs, starts, strict=True):
                assert len(each.run(start)[0]) == 3
                assert len(each.run(None, start="oldest")[0]) == 3
            old.append(logs[0].run(None, start="oldest")[1])
        done = subprocess.run(begin, check=True, capture_output=True, text=True)
        assert "A new log begins" in done.stdout


def test_an_hour_without_operations_is_empty_also_for_the_present_operations(small: Log) -> None:
    small.post(0, 1)
    first = small.moment()
    second = first + 1
    while time.time_ns() // 1_000_000 <= second + 1:
        time.sleep(0.001)
    small.post(1, 1)
    assert small.run(None, start=str(first), end=str(second))[0] == []
    assert small.run(None, start="oldest", end="1000")[0] == []
    assert small.run(None, start=str(second))[0] == [2]


@pytest.mark.parametrize("found", [5, {"offset": 3}, {"id": "0" * 40}])
def test_a_checkpoint_of_another_source_is_refused(small: Log, found: Any) -> None:
    small.post(0, 1)
    reader = reader_of(small.options)
    with pytest.raises(SyncError, match="is not of an oplog"):
        reader.latestOffset(found)
    reader.stop()


def _trim(small: Log) -> None:
    """Let the oldest operation leave the log."""
    small.post(0, 1)
    oldest, number = small.ids()[0], 0
    while small.ids()[0] == oldest:
        small.post(number, 500)
        number += 500


@pytest.mark.parametrize("on_gap", ["fail", "states"])
def test_a_position_of_another_history_is_told(small: Log, on_gap: str) -> None:
    small.post(0, 3)
    newest = int(small.ids()[-1][:8], 16) * 1000
    beyond = format_id(Mark(100, newest + 1))
    other = format_id(Mark(2, newest - 5000))
    for id_ in (beyond, other):
        at = {"id": id_, "offset": int(id_[12:], 16), "ms": newest}
        for read in (
            lambda at=at: small.run(at, onGap=on_gap),
            lambda id_=id_: small.batch(start=id_, onGap=on_gap),
        ):
            with pytest.raises(
                SyncError, match=r"another log|left the log of the agent|is unknown"
            ):
                read()


def test_a_stream_from_now_on_of_an_empty_log_has_all_its_operations(small: Log) -> None:
    reader = reader_of(small.options)
    start = reader.latestOffset(reader.initialOffset())
    reader.stop()
    small.post(0, 2)
    small.post(0, 2, "update")
    small.post(0, 1, "delete")
    assert small.run(start)[0] == [1, 2, 3, 4, 5]
    assert small.run(start, events="update")[0] == [3, 4]


def test_states_in_place_of_lost_operations_come_once_and_count_as_updates(small: Log) -> None:
    small.post(0, 10)
    _, at = small.run(None, start="oldest")
    _trim(small)
    objects = len(small.ids())
    found, end = small.run(at, onGap="states", maxOperationsPerTrigger="100")
    assert end["id"] == small.ids()[-1]
    assert len(found) >= objects
    inserted, _ = small.run(at, onGap="states", events="update")
    assert len(inserted) == len(found)
    with pytest.raises(SyncError, match="set the option onGap to states"):
        small.run(at)


def test_a_first_operation_that_leaves_before_it_is_read_is_told_or_bridged(small: Log) -> None:
    small.post(0, 10)
    for on_gap in ("fail", "states"):
        reader = reader_of({**small.options, "start": "oldest", "onGap": on_gap})
        start = reader.initialOffset()
        end = reader.latestOffset(start)
        parts = reader.partitions(start, end)
        reader.stop()
        _trim(small)
        if on_gap == "states" and "agent" in small.options:
            rows = [batch.num_rows for part in parts for batch in reader.read(part)]
            assert sum(rows) > 0
        else:
            with pytest.raises(SyncError, match="left the log"):
                [batch for part in parts for batch in reader.read(part)]


def test_a_query_for_the_present_operations_leaves_later_ones(small: Log) -> None:
    small.post(0, 2)
    reader = reader_of({**small.options, "start": "oldest"})
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    small.post(2, 2)
    assert reader.latestOffset(start)["offset"] == 2
    reader.stop()


def test_an_agent_that_knows_less_moves_no_end_back(
    small: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.post(0, 3)
    reader = reader_of({**small.options, "start": "oldest"})
    start = reader.initialOffset()
    first = reader.latestOffset(start)
    small.post(3, 2)
    monkeypatch.setattr(AgentLog, "position", lambda self: small.ids()[0])
    assert reader.latestOffset(first)["offset"] > first["offset"]
    reader.stop()
