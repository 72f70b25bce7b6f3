"""The sink for PostgreSQL behind a pool that gives each transaction another connection."""

from collections.abc import Iterator

import psycopg
import pytest

from oplog_pipe.sinks.postgres import PostgresOptions
from oplog_pipe.sinks.postgres.lanes import SPLIT_FROM
from oplog_pipe.sinks.postgres.sink import PostgresSink
from tests.integration.pipe.sinks.conftest import EARLY_COPY
from tests.kits.pipe.messages import OPLOG, message, owner, version
from tests.kits.pipe.targets import PostgresTarget, opened
from tests.kits.proxies.pooling import TransactionPool
from tests.kits.servers.postgres import PostgresServer


@pytest.fixture
def target(postgres: PostgresServer) -> PostgresTarget:
    return PostgresTarget(postgres)


@pytest.fixture
def pooled(target: PostgresTarget) -> Iterator[str]:
    """The URL of the target's database behind a pool."""
    with TransactionPool(target.server.port) as pool:
        yield f"{pool.through(target.url)}?sslmode=disable&gssencmode=disable"


def test_two_sinks_share_the_connections_of_a_pool(target: PostgresTarget, pooled: str) -> None:
    first = PostgresSink(PostgresOptions(pooled, table="first_{namespace}"))
    second = PostgresSink(PostgresOptions(pooled, table="second_{namespace}"))
    with opened(first), opened(second, owner("other")):
        for offset in range(8):
            first.write([message(offset, f"a{offset}"), message(offset, "gone", "delete")])
            second.write([message(offset, f"b{offset}"), message(offset, "gone", "delete")])
        first.end_copy(version(6), OPLOG)
        second.end_copy(version(7), OPLOG)
    assert sorted(target.objects("first_video")) == ["a6", "a7"]
    assert sorted(target.objects("second_video")) == ["b7"]


@pytest.mark.usefixtures("early_copy")
@pytest.mark.parametrize("size", [SPLIT_FROM, 2 * EARLY_COPY + 400])
def test_large_batches_pass_through_a_pool(size: int, target: PostgresTarget, pooled: str) -> None:
    with opened(PostgresSink(PostgresOptions(pooled))) as sink:
        sink.write([message(each, f"id{each}") for each in range(size)])
        sink.write([message(size + each, f"id{each}", "update") for each in range(size)])
    found = target.run("SELECT count(*), min(version), max(version) FROM video")
    assert found == [(size, version(size), version(2 * size - 1))]


def test_nothing_stays_on_the_connections_of_a_pool(target: PostgresTarget, pooled: str) -> None:
    """Neither the time-out nor statements nor tables."""
    with opened(PostgresSink(PostgresOptions(pooled, timeout=25))) as sink:
        sink.write([message(0)])
        with psycopg.connect(pooled, autocommit=True) as other:
            for _ in range(2):
                (row,) = other.execute(
                    "SELECT current_setting('statement_timeout'),"
                    " (SELECT count(*) FROM pg_prepared_statements), pg_my_temp_schema()::bigint"
                ).fetchall()
                assert row == ("0", 0, 0)
