"""Large batches into PostgreSQL: two connections, and COPY into a temporary table."""

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from uuid import NAMESPACE_OID, uuid5

import psycopg
import pytest
from psycopg.pq import PipelineStatus, TransactionStatus

from oplog_pipe.errors import ConfigError, SinkError, TargetError
from oplog_pipe.message import Message
from oplog_pipe.sinks.postgres import PostgresOptions
from oplog_pipe.sinks.postgres.lanes import LANES, SPLIT_FROM, Lanes
from oplog_pipe.sinks.postgres.rows import Statement
from oplog_pipe.sinks.postgres.session import Session
from oplog_pipe.sinks.postgres.sink import PostgresSink
from tests.integration.pipe.sinks.conftest import EARLY_COPY
from tests.kits.agents.agent import DEADLINE
from tests.kits.clock.waiting import attempts
from tests.kits.pipe.messages import OPLOG, message, owner, version
from tests.kits.pipe.targets import PostgresTarget, opened
from tests.kits.servers.postgres import PostgresServer

pytestmark = pytest.mark.usefixtures("early_copy")

# More than enough for COPY on each connection, however the ids are divided.
COPIED = LANES * EARLY_COPY + 400
SIZES = pytest.mark.parametrize("size", [SPLIT_FROM, COPIED])


@pytest.fixture
def target(postgres: PostgresServer) -> PostgresTarget:
    return PostgresTarget(postgres)


@pytest.fixture
def role(target: PostgresTarget) -> Iterator[str]:
    """A user who is no superuser, and may create tables in the target's database."""
    name = f"large_{os.getpid()}"
    target.run(f"CREATE ROLE {name} LOGIN")
    target.run(f"GRANT ALL ON SCHEMA public TO {name}")
    yield name
    target.run(f"DROP OWNED BY {name}")
    target.run(f"DROP ROLE {name}")


def batch(size: int, first: int = 0) -> list[Message]:
    return [message(first + each, f"id{each}") for each in range(size)]


def count(target: PostgresTarget) -> int:
    ((found,),) = target.run("SELECT count(*) FROM video")
    assert isinstance(found, int)
    return found


@SIZES
def test_the_last_message_of_each_object_counts(size: int, target: PostgresTarget) -> None:
    with opened(target.sink()) as sink:
        sink.write(batch(size))
        sink.write(
            [
                *batch(size, first=size),
                *[message(2 * size + each, f"id{each}", "delete") for each in range(10)],
                message(3 * size, "id3"),
            ]
        )
        sink.write(batch(size)[20:])  # they have come again
    assert target.run(f"SELECT id FROM video WHERE version > {version(2 * size)}") == [("id3",)]
    found = target.run(f"SELECT count(*) FROM video WHERE version >= {version(size)}")
    assert found == [(size - 9,)] == [(count(target),)]


@SIZES
def test_ids_of_another_type_are_rows_once(size: int, target: PostgresTarget) -> None:
    target.run(
        "CREATE TABLE video (id bigint PRIMARY KEY, version bigint, source text,"
        ' "timestamp" timestamptz, oplog_owner text, data jsonb)'
    )
    messages = [message(each, f"{each}") for each in range(size)]
    again = [message(size + each, f"0{each}") for each in range(10)]
    with opened(target.sink()) as sink:
        sink.write([*messages, *again])
    found = target.run(f"SELECT id FROM video WHERE version >= {version(size)} ORDER BY id")
    assert found == [(each,) for each in range(10)]
    assert count(target) == size


def test_two_texts_of_one_id_are_written_in_their_order(target: PostgresTarget) -> None:
    target.run(
        "CREATE TABLE video (id uuid PRIMARY KEY, version bigint, source text,"
        ' "timestamp" timestamptz, oplog_owner text, data jsonb)'
    )
    ids = [str(uuid5(NAMESPACE_OID, str(each))) for each in range(SPLIT_FROM)]
    with opened(target.sink()) as sink:
        sink.write(
            [message(each, id) for each, id in enumerate(ids)]
            + [message(1000 + each, id.upper(), "delete") for each, id in enumerate(ids)]
        )
    assert count(target) == 0


@SIZES
@pytest.mark.parametrize("fault", ["null", "trigger"])
def test_one_row_that_is_refused_is_found_and_the_others_can_be_written(
    fault: str, size: int, target: PostgresTarget
) -> None:
    target.run(
        "CREATE TABLE video (id text PRIMARY KEY, version bigint, source text,"
        ' "timestamp" timestamptz, oplog_owner text, n integer NOT NULL)'
    )
    target.run(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN IF new.n = 13 THEN RAISE 'no thirteen'; END IF; RETURN new; END$$"
    )
    target.run("CREATE TRIGGER r BEFORE INSERT ON video FOR EACH ROW EXECUTE FUNCTION refuse()")
    messages = [message(each, f"id{each}", data={"n": 100 + each}) for each in range(size)]
    bad = size // 3
    messages[bad] = message(bad, f"id{bad}", data={"n": None if fault == "null" else 13})
    with opened(target.sink(columns={"n": "n"})) as sink:
        with pytest.raises(SinkError) as caught:
            sink.write(messages)
        assert (caught.value.transient, caught.value.index) == (False, bad)
        assert not isinstance(caught.value, TargetError)
        sink.write(messages[:bad] + messages[bad + 1 :])
    assert count(target) == size - 1


@SIZES
def test_a_row_of_another_owner_is_refused_and_stays(size: int, target: PostgresTarget) -> None:
    with opened(target.sink(), owner("other")) as other:
        other.write([message(0, "id77")])
    with opened(target.sink()) as sink:
        with pytest.raises(SinkError, match="row 'id77' belongs to 'other/sink'") as caught:
            sink.write(batch(size, first=size))
        assert (caught.value.transient, caught.value.index) == (False, 77)
    assert target.run("SELECT version FROM video WHERE id = 'id77'") == [(version(0),)]


@SIZES
def test_a_batch_of_which_one_part_was_committed_is_whole_after_it_comes_again(
    size: int, target: PostgresTarget
) -> None:
    with opened(target.sink()) as sink:
        sink.write([message(0, "id0")])
    messages = batch(size, first=1)
    with opened(target.sink()) as sink, ThreadPoolExecutor(1) as pool:
        with psycopg.connect(target.url) as other:
            other.execute("SELECT FROM video WHERE id = 'id0' FOR UPDATE")
            writing = pool.submit(sink.write, messages)
            for _ in attempts(DEADLINE):
                if (part := count(target)) > 1:
                    break
            target.run(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'oplog-pipe' AND datname = current_database()"
            )
            error = writing.exception()
        assert isinstance(error, SinkError)
        assert error.transient
        assert part < size
    # As after a kill: another process takes the batch from the log.
    with opened(target.sink()) as sink:
        sink.write(messages)
        assert count(target) == size
        sink.end_copy(version(1), OPLOG)
    assert count(target) == size


def test_two_sinks_that_write_the_same_rows_wait_for_each_other_and_end(
    target: PostgresTarget,
) -> None:
    with opened(target.sink()) as sink:
        sink.write(batch(1))
    size, rounds = 2 * SPLIT_FROM, 10

    def write(numbers: range) -> None:
        with opened(target.sink()) as sink:
            for number in numbers:
                messages = batch(size, first=number * size)
                sink.write(messages if number % 2 else messages[::-1])

    with ThreadPoolExecutor(2) as pool:
        for each in [pool.submit(write, range(each, rounds, 2)) for each in range(2)]:
            each.result()
    assert target.run(
        f"SELECT count(*) FROM video WHERE version >= {version(size * (rounds - 1))}"
    ) == [(size,)]


def test_a_user_who_may_not_create_temporary_tables_writes_without_them(
    target: PostgresTarget, role: str
) -> None:
    target.run(f"REVOKE TEMPORARY ON DATABASE {target.url.rpartition('/')[2]} FROM PUBLIC")
    sink = PostgresSink(PostgresOptions(target.url.replace("postgres@", f"{role}@")))
    with opened(sink):
        with pytest.raises(SinkError, match="may not create temporary tables") as caught:
            sink.write(batch(COPIED))
        assert caught.value.transient
        for _ in range(3):
            sink.write(batch(COPIED))
    assert count(target) == COPIED


def test_a_user_who_may_open_one_connection_writes_on_it(target: PostgresTarget, role: str) -> None:
    target.run(f"ALTER ROLE {role} CONNECTION LIMIT 1")
    sink = PostgresSink(PostgresOptions(target.url.replace("postgres@", f"{role}@")))
    with opened(sink):
        for _ in range(3):
            sink.write(batch(SPLIT_FROM))
    assert count(target) == SPLIT_FROM


def test_a_message_that_is_no_json_is_named_in_a_batch_that_is_split(
    target: PostgresTarget,
) -> None:
    messages = batch(SPLIT_FROM)
    messages[50].data = {"x": object()}
    with opened(target.sink()) as sink:
        with pytest.raises(SinkError, match="cannot be written as JSON") as caught:
            sink.write(messages)
        assert (caught.value.transient, caught.value.index) == (False, 50)
        sink.write(batch(SPLIT_FROM))
    assert count(target) == SPLIT_FROM


@pytest.mark.parametrize("fault", ["json", "owner", "both"])
def test_of_several_messages_that_are_refused_the_first_one_is_named(
    fault: str, target: PostgresTarget
) -> None:
    for refused in combinations([3, 50, 199], 2):
        messages = batch(SPLIT_FROM, first=1)
        for each in refused if fault == "json" else refused[1:] if fault == "both" else ():
            messages[each].data = {"x": object()}
        with opened(target.sink(), owner("other")) as other:
            other.write([message(0, f"id{each}") for each in ("x", *refused)])
        if fault == "json":
            target.run("DELETE FROM video")
        with opened(target.sink()) as sink, pytest.raises(SinkError) as caught:
            sink.write(messages)
        assert caught.value.index == refused[0]
        target.run("DROP TABLE video")


@pytest.mark.parametrize("error", [MemoryError, asyncio.CancelledError, ConfigError])
@pytest.mark.parametrize("place", ["build", "send", "finish"])
def test_no_connection_is_left_within_a_transaction_by_an_error_between_the_two(
    place: str,
    error: type[BaseException],
    postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lanes = Lanes(postgres.url(), DEADLINE, creates=True)
    assert lanes.count(SPLIT_FROM) == LANES
    with monkeypatch.context() as patch:

        def fail(*_: object, **__: object) -> None:
            raise error("not of the driver")

        def build(number: int, _: bool) -> list[Statement]:
            if number == 1 and place != "finish":
                if place == "build":
                    fail()
                patch.setattr(Session, "_begin", fail)
            elif number == 1:
                patch.setattr(Session, "finish", fail)
            return [Statement("", b"SELECT %b::int", (1,), [])]

        with pytest.raises(error):
            lanes.write(LANES, build, keep=True)
    for session in lanes._sessions:
        connection = session.connect()
        assert connection.info.pipeline_status == PipelineStatus.OFF
        assert connection.info.transaction_status == TransactionStatus.IDLE
        assert session.run(lambda it: it.execute("SELECT 7").fetchone()) == (7,)
    lanes.close()
