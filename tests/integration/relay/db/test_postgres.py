"""What only PostgreSQL does: several writers at a time, rights, types of columns."""

import asyncio
import random
from datetime import UTC, datetime
from urllib.parse import quote
from uuid import UUID, uuid4

import psycopg
import pytest

from oplog_relay.db import DatabaseOutbox, open_outbox
from oplog_relay.db.operated import OperatedTable
from oplog_relay.db.schema import ddl
from oplog_relay.model.bindings import Purged
from oplog_relay.model.errors import ConfigError, OutboxError
from oplog_relay.model.row import Row
from oplog_relay.model.settings import DatabaseSettings, Table
from tests.kits.relay.places import Kind, Place, ids_of
from tests.kits.servers.postgres import PostgresServer

A, B = uuid4(), uuid4()
GOHARVEST = Table(
    topic="kafka_topic",
    key="kafka_key",
    value="kafka_value",
    header_keys="kafka_header_keys",
    header_values="kafka_header_values",
)


@pytest.fixture
def kind(postgres: PostgresServer) -> Kind:
    return "postgres"


async def test_a_row_that_commits_late_is_marked_and_one_that_rolls_back_stops_nothing(
    place: Place, outbox: DatabaseOutbox
) -> None:
    place.insert(*"abcd")
    with place.connect() as late, place.connect() as never:
        for connection in (late, never):
            connection.execute("INSERT INTO outbox (topic, key) VALUES ('t', 'k')")
        place.insert("g")
        rows = await outbox.mark(A, 10)
        assert ids_of(rows) == [1, 2, 3, 4, 7]
        assert await outbox.purge(A, rows) == Purged()
        never.rollback()
        assert await outbox.mark(A, 10) == []
        late.commit()
    assert ids_of(await outbox.mark(A, 10)) == [5]


async def test_statements_of_several_relays_do_not_deadlock(
    place: Place, outbox: DatabaseOutbox
) -> None:
    place.insert(*(str(number) for number in range(300)))
    other = place.open()
    choose = random.Random(1)
    marked: dict[UUID, list[Row]] = {A: [], B: []}

    async def mark(outbox: DatabaseOutbox, leader: UUID) -> None:
        for number in range(40):
            marked[leader] += await outbox.mark(leader, 100, number)

    async def purge(outbox: DatabaseOutbox, leader: UUID) -> None:
        for _ in range(40):
            rows = choose.sample(marked[leader], k=min(5, len(marked[leader])))
            await outbox.purge(leader, rows)

    async def reset(outbox: DatabaseOutbox, leader: UUID) -> None:
        for _ in range(20):
            await outbox.reset(leader)

    await asyncio.gather(
        *(
            work(each, leader)
            for work in (mark, purge, reset)
            for each, leader in ((outbox, A), (other, B))
        )
    )
    await other.dispose()


async def test_the_head_is_read_by_its_index_although_the_table_was_empty_at_first(
    place: Place, outbox: DatabaseOutbox
) -> None:
    figures = "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'outbox'"
    while (before := place.run(figures)) != [(1,)]:  # the index was built by one
        await asyncio.sleep(0.01)
    for _ in range(8):
        assert await outbox.mark(A, 100) == []
        assert await outbox.mark(A, 100, 0, ["x"]) == []
        assert await outbox.purge(A, [Row(1, datetime.now(UTC), "t", "k", None)]) == Purged()
    place.insert(*(str(number) for number in range(3000)))
    rows = await outbox.mark(A, 100)
    assert len(rows) == 100
    assert len(await outbox.mark(A, 100, 0, ["x"])) == 100
    assert await outbox.purge(A, rows[:50]) == Purged()
    assert await outbox.reset(A, rows=rows[50:]) == 50
    assert await outbox.reset(A) == 100
    await outbox.dispose()  # a session hands its figures in at its end
    while not place.run(f"{figures} AND idx_scan >= 35"):
        await asyncio.sleep(0.01)
    assert place.run(figures) == before


async def test_a_table_of_goharvest_works_as_it_is(place: Place) -> None:
    place.run("DROP TABLE outbox")
    place.run(
        "CREATE TABLE outbox (id BIGSERIAL PRIMARY KEY,"
        " create_time TIMESTAMP WITH TIME ZONE NOT NULL, kafka_topic VARCHAR(249) NOT NULL,"
        " kafka_key VARCHAR(100) NOT NULL, kafka_value VARCHAR(10000),"
        " kafka_header_keys TEXT[] NOT NULL, kafka_header_values TEXT[] NOT NULL, leader_id UUID)"
    )
    place.table = GOHARVEST
    place.insert("k", headers={"a": "b"})
    outbox = place.open()
    await outbox.check()
    (row,) = await outbox.mark(A, 10)
    assert row == Row(1, row.create_time, "topic", "k", "value", (("a", "b"),))
    assert await outbox.purge(A, [row]) == Purged()
    assert await outbox.reset(A, key="k") == 0
    await outbox.dispose()


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ("header_keys = '{a,b}'", "there are 2 header keys and 0 header values"),
        ("header_keys = '{NULL}', header_values = '{a}'", "a header's key or value is not a str"),
        ("header_keys = '{{a},{b}}', header_values = '{a,b}'", "a header's key or value is not"),
        ("header_keys = NULL", "the header keys are NULL"),
        ("header_values = NULL", "the header values are NULL"),
        ("key = NULL", "the key is NULL"),
        ("create_time = 'infinity'", "the create time is out of range"),
        ("create_time = '11111-01-01'", "the create time is out of range"),
    ],
)
async def test_a_faulty_row_is_told_and_does_not_stop_the_others(
    columns: str, fault: str, place: Place, outbox: DatabaseOutbox
) -> None:
    for column in ("key", "header_keys", "header_values"):
        place.run(f"ALTER TABLE outbox ALTER {column} DROP NOT NULL")
    place.insert("a", "b")
    place.run(f"UPDATE outbox SET {columns} WHERE id = 1")
    faulty, good = await outbox.mark(A, 10)
    assert faulty.fault.startswith(fault)
    assert (good.id, good.fault) == (2, "")
    assert (await outbox.backlog(10)).rows == 2


async def test_rows_without_a_key_are_reset_together(place: Place, outbox: DatabaseOutbox) -> None:
    place.run("ALTER TABLE outbox ALTER key DROP NOT NULL")
    place.insert("a", "b", "c")
    place.run("UPDATE outbox SET key = NULL WHERE id < 3")
    assert [row.key for row in await outbox.mark(A, 10)] == ["", "", "c"]
    assert await outbox.reset(A, key="") == 2


async def test_keys_that_the_collation_takes_for_equal_are_told_apart(place: Place) -> None:
    place.run(
        "CREATE COLLATION same (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
    )
    place.run("ALTER TABLE outbox ALTER key TYPE text COLLATE same")
    assert place.run("SELECT 'a' = 'A' COLLATE same") == [(True,)]
    place.insert(*"aAaA")
    outbox = place.open()
    assert ids_of(await outbox.mark(A, 9, 1, ["a"])) == [2, 4]
    assert ids_of(await outbox.mark(A, 9, 2)) == [1, 3]
    assert await outbox.reset(A, key="A") == 2
    assert await outbox.reset(A) == 2
    with place.connect() as other:
        other.execute("SELECT FROM outbox WHERE id = 1 FOR UPDATE")
        assert ids_of(await outbox.mark(A, 2, 3)) == [2]
        assert ids_of(await outbox.mark(A, 2, 4)) == [4]
        other.rollback()
    await outbox.dispose()


@pytest.mark.parametrize("time", ["infinity", "-infinity"])
async def test_the_backlog_has_an_age_whatever_the_time_of_its_oldest_row(
    time: str, place: Place, outbox: DatabaseOutbox
) -> None:
    place.insert("a")
    place.run(f"UPDATE outbox SET create_time = '{time}'")
    assert await outbox.backlog(10) == (1, 0.0)


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
async def test_text_comes_back_from_a_database_with_another_encoding(
    encoding: str, postgres: PostgresServer
) -> None:
    name = f"encoded_{encoding.lower()}"
    postgres.run(f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0")
    url = f"{postgres.url(name)}?client_encoding=UTF8"
    with psycopg.connect(url, autocommit=True) as service:
        service.execute(ddl("postgres"))
        service.execute("INSERT INTO outbox (topic, key, value) VALUES ('t', 'é', 'ü')")
    settings = DatabaseSettings(postgres.url(name))
    outbox = open_outbox(settings)
    await outbox.check()
    assert [(row.key, row.value) for row in await outbox.mark(A, 10)] == [("é", "ü")]
    assert await outbox.reset(A, key="é") == 1
    await outbox.dispose()
    with OperatedTable(settings) as table:
        assert [(row.topic, row.key) for row in table.find([1])] == [("t", "é")]


async def test_other_types_of_columns_work_if_they_have_a_text(place: Place) -> None:
    place.run("DROP TABLE outbox")
    place.run(
        "CREATE TABLE outbox (id int PRIMARY KEY, create_time timestamp, topic text, key bigint,"
        " value jsonb, header_keys varchar[], header_values varchar[], leader_id uuid)"
    )
    place.run(
        "INSERT INTO outbox VALUES"
        " (7, '2026-01-02 03:04:05.678901', 't', 42, '{\"a\": 1}', '{}', '{}'),"
        " (8, NULL, 't', 43, NULL, '{}', '{}')"
    )
    outbox = place.open()
    await outbox.check()
    first, second = await outbox.mark(A, 10)
    assert (first.key, first.value) == ("42", '{"a": 1}')
    assert first.create_time.isoformat() == "2026-01-02T03:04:05.678901+00:00"
    assert (second.value, second.fault) == (None, "")
    assert await outbox.reset(A, key="42") == 1
    assert await outbox.purge(A, [first, second]) == Purged(changed=1)
    await outbox.dispose()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("ALTER leader_id TYPE text", r"columns\.leader_id: .*'leader_id' .* type text; .*uuid"),
        ("ALTER header_keys TYPE text", r"columns\.header_keys: .* has the type text; .*text\[\]"),
        ("ALTER create_time TYPE text", r"columns\.create_time: .* has the type text; .*timestamp"),
        ("DROP CONSTRAINT outbox_pkey", r"columns\.id: .*'id' is not the first column of an index"),
        (
            "DROP CONSTRAINT outbox_pkey; CREATE INDEX ON outbox (id)",
            r"columns\.id: .*'id' is not the first column of an index without duplicates",
        ),
    ],
)
async def test_a_column_that_does_not_fit_is_named(
    change: str, sentence: str, place: Place, outbox: DatabaseOutbox
) -> None:
    if "header_keys" in change:
        place.run("ALTER TABLE outbox ALTER header_keys DROP DEFAULT")
    place.run(f"ALTER TABLE outbox {change}")
    with pytest.raises(ConfigError, match=rf"^database\.{sentence}"):
        await outbox.check()


async def test_a_server_that_can_only_read_is_told(place: Place) -> None:
    only_reads = f"{place.url}?options=-c%20default_transaction_read_only%3Don"
    outbox = open_outbox(DatabaseSettings(only_reads))
    with pytest.raises(OutboxError, match="can only read"):
        await outbox.check()
    await outbox.dispose()


async def test_a_user_needs_rights_on_the_table_and_its_password_is_never_shown(
    place: Place, postgres: PostgresServer
) -> None:
    secret = "p@s s/%:ö"
    database = place.url.rpartition("/")[2]

    def opened(password: str, query: str = "") -> DatabaseOutbox:
        url = postgres.url(database, user, quote(password, safe=""))
        return open_outbox(DatabaseSettings(url + query))

    async def refusal(outbox: DatabaseOutbox, error: type[Exception]) -> str:
        with pytest.raises(error) as raised:
            await outbox.check()
        await outbox.dispose()
        return str(raised.value)

    with postgres.guarded_user(secret) as user:
        said = await refusal(opened(secret), ConfigError)
        assert said.startswith("database.url: ")
        assert 'GRANT SELECT, UPDATE, DELETE ON "outbox"' in said
        place.run(f"GRANT SELECT, DELETE ON outbox TO {user}")
        place.run(f"GRANT UPDATE (leader_id) ON outbox TO {user}")
        place.insert("k")
        outbox = opened(secret)
        await outbox.check()
        assert await outbox.reset(A) == 0
        rows = await outbox.mark(A, 1)
        assert ids_of(rows) == [1]
        assert await outbox.purge(A, rows) == Purged()
        await outbox.dispose()
        for wrong, query, part in (
            ("wrong-secret", "", "password authentication failed"),
            ("wrong-secret", "?sslmode=require", "SSL"),
        ):
            said = await refusal(opened(wrong, query), OutboxError)
            assert "database.url" in said
            assert part in said
            assert wrong not in said
        with pytest.raises(ConfigError, match="invalid connection option") as raised:
            opened("wrong-secret", "?nonsense=1")
        assert "wrong-secret" not in str(raised.value)
        place.run(f"DROP OWNED BY {user}")


async def test_the_server_is_found_at_its_unix_socket(
    place: Place, postgres: PostgresServer
) -> None:
    outbox = open_outbox(DatabaseSettings(postgres.socket_url(place.url.rpartition("/")[2])))
    place.insert("k")
    assert ids_of(await outbox.mark(A, 1)) == [1]
    await outbox.dispose()
