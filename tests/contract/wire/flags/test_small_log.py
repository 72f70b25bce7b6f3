"""The starts of a stream that need an empty log, or one so small that operations leave it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.wire.store_kinds import TRIMMING, StoreKind
from tests.kits.clock.moved import MovedClock
from tests.kits.contract.wire import RESET, Target, event_of, id_of, operation, said, wait_until

HOUR = 3_600
LIVE_IN_EMPTY_LOG = b"id: 1\nevent: live\ndata:\n\n"


@pytest.fixture
def empty(store_kind: StoreKind, tmp_path: Path) -> Iterator[Target]:
    with store_kind.agent(tmp_path, "--heartbeat", "200ms") as agent:
        yield Target.of(agent)


def ms_of(event_id: str) -> int:
    return int(event_id[:8], 16) * 1000 + int(event_id[8:12], 16)


def test_a_stream_of_an_empty_log_begins_with_its_first_operation(empty: Target) -> None:
    with empty.follow() as stream:
        empty.store(operation("insert", "a", "thing"))
        assert said(stream.block()) == ("insert", "a")


def test_a_replication_of_an_empty_log_is_reset_and_live(empty: Target) -> None:
    for start in ("2", "9" * 13, "545b55c7f095528dd0f3863c", "0" * 24, "f" * 24):
        with empty.follow(start) as stream:
            assert stream.take(2) == [RESET, LIVE_IN_EMPTY_LOG]
    with empty.follow("0") as stream:
        assert stream.take(2) == [RESET, LIVE_IN_EMPTY_LOG]
        empty.store(operation("delete", "a", "thing"), operation("insert", "b", "thing"))
        assert [said(block) for block in stream.take(2)] == [("delete", "a"), ("insert", "b")]
    with empty.follow("1") as stream:
        assert [said(block) for block in stream.take(3)] == [
            ("delete", "a"),
            ("insert", "b"),
            ("live", ""),
        ]


def test_a_checkpoint_of_an_empty_log_resumes_without_loss(empty: Target) -> None:
    with empty.follow(checkpoint="1") as stream:
        position = id_of(stream.block())
    empty.store(operation("insert", "a", "thing"), operation("delete", "b", "thing"))
    with empty.follow(position) as stream:
        assert [said(block) for block in stream.take(3)] == [
            ("insert", "a"),
            ("delete", "b"),
            ("live", ""),
        ]


@pytest.mark.parametrize("store_kind", TRIMMING, indirect=True)
def test_an_id_that_has_left_the_log_is_followed_by_the_changes_since_its_second(
    store_kind: StoreKind, tmp_path: Path
) -> None:
    clock = MovedClock(tmp_path, is_of_server=True)
    with store_kind.agent(tmp_path, "--capped-collection-size", "4096", clock=clock) as agent:
        target = Target.of(agent)
        told: list[bytes] = []
        with target.follow() as stream:

            def write(event: str, id_: str) -> str:
                target.store(operation(event, id_, "thing"))
                told.append(stream.block())
                return id_of(told[-1])

            write("insert", "untouched")
            second = int(write("insert", "deleted")[:8], 16)
            clock.move(1)
            write("update", "pastime")
            mark = write("insert", "marked")
            assert int(mark[:8], 16) > second
            write("delete", "deleted")
            write("delete", "never seen")
            for _ in range(60):
                write("update", "filler")
            head = id_of(told[-1])
        assert wait_until(
            lambda: target.status()["store"]["oldest_id"] > mark
        )  # a plain log is trimmed a little later

        last = {said(block)[1]: block for block in told}
        since = int(mark[:8], 16) * 1000
        changed = [
            block for block in told if block in last.values() and ms_of(id_of(block)) >= since
        ]
        assert "untouched" not in [said(block)[1] for block in changed]
        with target.follow(mark) as stream:
            *states, live = stream.until("live")
            assert [(id_of(block), *said(block)) for block in states] == [
                (
                    str(ms_of(id_of(block))),
                    "delete" if event_of(block) == "delete" else "insert",
                    said(block)[1],
                )
                for block in changed
            ]
            assert id_of(live) == head
            target.store(operation("insert", "after", "thing"))
            assert said(stream.block()) == ("insert", "after")

        offset_of_another_time = f"{int(mark[:8], 16) + 3600:08x}{mark[8:]}"
        with target.follow(offset_of_another_time) as stream:
            assert stream.block() == RESET


def _folded_states(target: Target) -> int | None:
    """Return the number of states, once the whole log is folded into them."""
    store = target.status()["store"]
    return int(store["states"]) if store["lag"]["fold"] == 0 else None


@pytest.mark.parametrize("store_kind", TRIMMING, indirect=True)
def test_a_start_before_the_purge_of_deleted_states_brings_reset(
    store_kind: StoreKind, tmp_path: Path
) -> None:
    clock = MovedClock(tmp_path, is_of_server=True)
    flags = ("--tombstone-retention", "1s", "--capped-collection-size", "4096")
    with store_kind.agent(tmp_path, *flags, clock=clock) as agent:
        target = Target.of(agent)
        with target.follow() as stream:
            target.store(operation("insert", "kept", "thing"))
            target.store(operation("insert", "gone", "thing"), operation("delete", "gone", "thing"))
            before, *_ = [id_of(block) for block in stream.take(3)]
        assert wait_until(lambda: _folded_states(target) is not None)
        clock.move(HOUR)  # far more than ten leases in MongoDB, in which a tombstone stays
        assert wait_until(lambda: _folded_states(target) == 1)
        with target.follow(before) as stream:  # still in the log: no state is needed
            assert [said(block) for block in stream.take(2)] == [
                ("insert", "gone"),
                ("delete", "gone"),
            ]
        for _ in range(60):
            target.store(operation("update", "filler", "thing"))
        assert wait_until(
            lambda: target.status()["store"]["oldest_id"] > before
        )  # a plain log is trimmed a little later
        for start in (before, str(ms_of(before))):
            with target.follow(start) as stream:
                assert stream.block() == RESET
                assert {said(block)[1] for block in stream.until("live")[:-1]} == {"kept", "filler"}
        with target.follow("1") as stream:
            assert event_of(stream.block()) == "insert"
