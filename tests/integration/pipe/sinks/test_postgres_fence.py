"""The fence in PostgreSQL: large batches, stopped writers, and its table."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import psycopg
import pytest

from oplog_pipe.errors import FencedError, SinkError, TargetError
from oplog_pipe.sinks.parts.fence import Fence
from oplog_pipe.sinks.postgres import PostgresOptions
from oplog_pipe.sinks.postgres import fence as fences
from oplog_pipe.sinks.postgres.lanes import LANES
from oplog_pipe.sinks.postgres.sink import PostgresSink
from tests.integration.pipe.sinks.conftest import EARLY_COPY
from tests.kits.pipe.messages import message, owner
from tests.kits.pipe.targets import PostgresTarget
from tests.kits.servers.postgres import PostgresServer

Sinks = Callable[..., PostgresSink]


@pytest.fixture
def target(postgres: PostgresServer) -> PostgresTarget:
    return PostgresTarget(postgres)


@pytest.fixture
def sinks(target: PostgresTarget) -> Iterator[Sinks]:
    """Return open sinks of one owner."""
    with ExitStack() as stack:

        def opened(fence: Fence | None = None, **options: Any) -> PostgresSink:
            sink = target.sink(**options)
            sink.own(owner())
            sink.open()
            if fence is not None:
                sink.stand_at(fence)
            stack.callback(sink.close)
            return sink

        yield opened


@pytest.mark.usefixtures("early_copy")
def test_a_large_batch_that_comes_too_late_writes_nothing(
    target: PostgresTarget, sinks: Sinks
) -> None:
    count = EARLY_COPY * LANES + 400
    driver = sinks()
    term = driver.begin_term()
    driver.move_fence(Fence(term, 0))
    late = sinks(Fence(term, 0))
    late.write([message(n, f"x{n}") for n in range(count)])
    assert len(target.objects()) == count
    driver.move_fence(Fence(term, 1))
    present = sinks(Fence(term, 1))
    present.write([message(count + n, f"x{n}", op="delete") for n in range(count)])
    with pytest.raises(FencedError):
        late.write([message(n, f"x{n}") for n in range(count)])
    assert target.objects() == {}


def test_a_writer_that_stops_in_a_transaction_is_disconnected(
    target: PostgresTarget, sinks: Sinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fences, "_WAIT_MS", 50)
    driver = sinks()
    term = driver.begin_term()
    driver.move_fence(Fence(term, 0))
    writer = sinks(Fence(term, 0))
    writer.write([message(0)])
    session = writer._session

    def stop(connection: psycopg.Connection[tuple[object, ...]]) -> None:
        with pytest.raises(SinkError, match="a task that has stopped") as caught:
            driver.move_fence(Fence(term, 1))
        assert caught.value.transient
        driver.move_fence(Fence(term, 1))
        connection.execute("SELECT 1")

    with pytest.raises(SinkError) as ended:
        session.run(stop)
    assert ended.value.transient  # it has lost its connection
    with pytest.raises(FencedError):
        writer.write([message(1, op="delete")])
    assert len(target.objects()) == 1


def test_the_transactions_of_others_are_left_alone(
    target: PostgresTarget, sinks: Sinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fences, "_WAIT_MS", 50)
    driver = sinks()
    term = driver.begin_term()
    with psycopg.connect(target.url) as other:
        other.execute("SELECT FROM oplog_fence FOR SHARE")
        with pytest.raises(SinkError):
            driver.move_fence(Fence(term, 0))
        other.execute("SELECT 1")
    driver.move_fence(Fence(term, 0))


def test_a_missing_table_of_fences_is_named_with_its_statement(
    target: PostgresTarget, sinks: Sinks
) -> None:
    driver = sinks(create=False)
    with pytest.raises(TargetError, match="CREATE TABLE") as caught:
        driver.begin_term()
    statement = str(caught.value).partition(" create it: ")[2]
    with psycopg.connect(target.url) as connection:
        connection.execute(statement.encode())
    assert driver.begin_term() == 1
    with suppress(FencedError):
        driver.move_fence(Fence(2, 0))
        raise AssertionError("the term has not begun")


def test_a_user_without_the_right_to_create_needs_none_if_the_table_is_there(
    target: PostgresTarget, sinks: Sinks
) -> None:
    assert sinks().begin_term() == 1
    target.run("CREATE ROLE few LOGIN; GRANT SELECT, INSERT, UPDATE ON oplog_fence TO few")
    url = target.url.replace("postgres@", "few@")
    sink = PostgresSink(PostgresOptions(url))
    sink.own(owner())
    sink.open()
    assert sink.begin_term() == 2
    sink.close()
    target.run("DROP TABLE oplog_fence; DROP ROLE few; CREATE ROLE few LOGIN")
    sink = PostgresSink(PostgresOptions(url))
    sink.own(owner())
    sink.open()
    with pytest.raises(TargetError, match='"oplog_fence" is missing; run as a user'):
        sink.begin_term()
    sink.close()
    target.run("DROP ROLE few")


def test_the_fence_is_where_the_rows_are_however_their_table_is_named(
    target: PostgresTarget, sinks: Sinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    sinks().write([message(0)])
    assert sinks(table="public.video").begin_term() == 1
    target.run("CREATE SCHEMA first")
    monkeypatch.setattr(target, "url", f"{target.url}?options=-csearch_path%3Dfirst,public")
    assert sinks(table="video").begin_term() == 2
    assert target.run("SELECT to_regclass('first.oplog_fence') IS NULL") == [(True,)]


def test_a_user_that_may_see_the_fence_is_told_what_it_may_not_do(
    target: PostgresTarget, sinks: Sinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fences, "_WAIT_MS", 50)
    driver = sinks()
    fence = Fence(driver.begin_term(), 0)
    driver.move_fence(fence)
    target.run("CREATE ROLE onlooker LOGIN")
    plain = target.url
    monkeypatch.setattr(target, "url", plain.replace("postgres@", "onlooker@"))
    few = sinks()
    monkeypatch.setattr(target, "url", plain)
    with pytest.raises(TargetError, match="permission denied for table oplog_fence"):
        few.read_fence()
    target.run("GRANT SELECT ON oplog_fence TO onlooker")
    assert few.read_fence() == fence
    with pytest.raises(TargetError, match="run as its owner: GRANT") as caught:
        few.begin_term()
    target.run(str(caught.value).partition(" run as its owner: ")[2])
    writer = sinks(fence)

    def stop(connection: psycopg.Connection[tuple[object, ...]]) -> None:
        with pytest.raises(TargetError, match="may not disconnect it") as caught:
            few.begin_term()
        assert str(caught.value).endswith('GRANT pg_signal_backend TO "onlooker"')

    writer._session.run(stop)
    assert few.begin_term() == 2
    few.close()
    target.run("DROP OWNED BY onlooker; DROP ROLE onlooker")


def test_a_lock_of_somebody_else_is_called_so(
    target: PostgresTarget, sinks: Sinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fences, "_WAIT_MS", 50)
    driver = sinks()
    driver.begin_term()
    with psycopg.connect(target.url) as other:
        other.execute("SELECT FROM oplog_fence FOR UPDATE")
        with pytest.raises(SinkError, match="another one holds the lock of a row of table"):
            driver.begin_term()


def test_drivers_that_create_the_table_at_the_same_moment_do_not_fail(
    target: PostgresTarget,
) -> None:
    def begin(number: int) -> int:
        sink = target.sink()
        sink.own(owner(f"p{number}"))
        sink.open()
        ready.wait()
        try:
            return sink.begin_term()
        finally:
            sink.close()

    for _ in range(5):
        ready = threading.Barrier(4)
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(begin, range(4))) == [1, 1, 1, 1]
        target.run("DROP TABLE oplog_fence")
