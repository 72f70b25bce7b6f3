"""A server of PostgreSQL that dies, is silent, or whose answers are lost."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from oplog_relay.db import DatabaseOutbox, open_outbox
from oplog_relay.model.bindings import Purged
from oplog_relay.model.errors import OutboxError
from oplog_relay.model.settings import DatabaseSettings
from tests.kits.agents.agent import DEADLINE
from tests.kits.proxies.proxy import Proxy
from tests.kits.relay.places import Kind, Place, ids_of, stamped
from tests.kits.servers.postgres import PostgresServer

A, B = uuid4(), uuid4()


@pytest.fixture
def kind() -> Kind:
    return "postgres"


@pytest.fixture
def server(own_postgres: PostgresServer) -> PostgresServer:
    return own_postgres


@contextmanager
def through_proxy(place: Place) -> Iterator[tuple[Proxy, DatabaseOutbox]]:
    """Yield a proxy before the server, and an outbox that uses it."""
    port = urlsplit(place.url).port
    assert port is not None
    with Proxy(port) as proxy:
        yield proxy, open_outbox(DatabaseSettings(proxy.through(place.url)))


async def test_a_killed_server_fails_calls_until_it_is_back(
    place: Place, outbox: DatabaseOutbox, own_postgres: PostgresServer
) -> None:
    place.insert(*"abc")
    rows = await outbox.mark(A, 1)
    assert ids_of(rows) == [1]
    assert await outbox.purge(A, rows) == Purged()
    own_postgres.kill()
    for _ in range(2):
        for call in (outbox.mark(A, 1), outbox.purge(A, rows), outbox.reset(A), outbox.backlog(1)):
            with pytest.raises(OutboxError, match=r"^PostgreSQL \(database\.url\): "):
                await call
    own_postgres.start()
    rows = await outbox.mark(A, 5)
    assert ids_of(rows) == [2, 3]
    assert await outbox.purge(A, rows[:1]) == Purged()
    assert place.leaders() == [(3, stamped(A))]


async def test_a_mark_whose_answer_is_lost_fails_and_its_rows_can_be_reset(place: Place) -> None:
    place.insert(*"abc")
    with through_proxy(place) as (proxy, outbox):
        assert ids_of(await outbox.mark(A, 1)) == [1]
        proxy.hold_answers()
        marking = asyncio.create_task(outbox.mark(A, 1))
        await asyncio.to_thread(proxy.wait_held)
        proxy.end_connections()
        with pytest.raises(OutboxError):
            await marking
        assert place.leaders() == [(1, stamped(A)), (2, stamped(A)), (3, None)]
        assert await outbox.reset(A) == 2
        assert ids_of(await outbox.mark(B, 5)) == [1, 2, 3]
        assert proxy.connections == 2
        await outbox.dispose()


async def test_a_purge_whose_answer_is_lost_fails_and_can_be_repeated(place: Place) -> None:
    place.insert(*"abc")
    with through_proxy(place) as (proxy, outbox):
        rows = await outbox.mark(A, 3)
        assert await outbox.purge(A, rows[:1]) == Purged()
        proxy.hold_answers()
        purging = asyncio.create_task(outbox.purge(A, rows[:2]))
        await asyncio.to_thread(proxy.wait_held)
        proxy.end_connections()
        with pytest.raises(OutboxError):
            await purging
        assert await outbox.purge(A, rows) == Purged()
        assert place.ids() == []
        await outbox.dispose()


async def test_a_server_that_is_silent_fails_the_call_and_a_stop_does_not_wait_for_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.insert(*"abc")
    with through_proxy(place) as (proxy, outbox):
        rows = await outbox.mark(A, 1)
        proxy.freeze()
        monkeypatch.setattr("oplog_relay.db.postgres.lane.DEADLINE", 0.1)
        with pytest.raises(OutboxError, match=r"database\.url\): no answer within"):
            await outbox.mark(A, 1)
        with pytest.raises(OutboxError, match="no answer within"):
            await outbox.purge(A, rows)  # while it connects
        monkeypatch.setattr("oplog_relay.db.postgres.lane.DEADLINE", 3600.0)
        waiting: Sequence[asyncio.Task[object]] = [
            asyncio.ensure_future(outbox.mark(A, 1)),
            asyncio.ensure_future(outbox.mark(A, 1)),
        ]
        await asyncio.sleep(0)
        async with asyncio.timeout(DEADLINE):
            await outbox.dispose()
        for each in waiting:
            with pytest.raises(OutboxError):
                await each


async def test_a_cancelled_call_does_not_hold_up_the_next_one(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Psycopg alone would wait 5 s for the silent server."""
    place.insert(*"abc")
    monkeypatch.setattr("oplog_relay.db.postgres.lane.DEADLINE", 4.0)
    with through_proxy(place) as (proxy, outbox):
        assert ids_of(await outbox.mark(A, 1)) == [1]
        proxy.hold_answers()
        marking = asyncio.create_task(outbox.mark(A, 1))
        await asyncio.to_thread(proxy.wait_held)
        marking.cancel()
        assert ids_of(await outbox.mark(B, 3)) == [1, 2, 3]
        assert marking.cancelled()
        await outbox.dispose()


async def test_a_statement_that_waits_too_long_for_a_lock_fails(
    place: Place, monkeypatch: pytest.MonkeyPatch, patient: None
) -> None:
    """An option in the URL wins over the relay's own, of 8 s."""
    monkeypatch.setattr("oplog_relay.db.postgres.lane.DEADLINE", 7.0)
    place.insert("a")
    limit = "?options=-c%20statement_timeout%3D1000"
    outbox = open_outbox(DatabaseSettings(place.url + limit))
    with place.connect() as other:
        other.execute("UPDATE outbox SET value = 'x'")
        with pytest.raises(OutboxError, match="statement timeout"):
            await outbox.mark(A, 1)
        other.rollback()
    assert ids_of(await outbox.mark(A, 1)) == [1]
    await outbox.dispose()


async def test_the_server_gives_up_a_relay_that_does_not_take_the_rows_of_its_mark(
    place: Place, outbox: DatabaseOutbox
) -> None:
    """A relay that is frozen then keeps rows locked for 8 s, not for as long as it is frozen."""
    place.run(
        "CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.value = current_setting('tcp_user_timeout'); RETURN NEW; END $$"
    )
    place.run("CREATE TRIGGER tell BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION tell()")
    place.insert("a")
    assert [row.value for row in await outbox.mark(A, 1)] == ["8000"]


async def test_a_connection_that_was_ended_while_it_was_idle_fails_no_call(
    place: Place, outbox: DatabaseOutbox
) -> None:
    """A server or a proxy may have a time-out for idle sessions, and few rows mean few purges."""
    place.insert(*"abc")
    own = "application_name = 'oplog-relay' AND datname = current_database()"
    for id_ in (1, 2, 3):
        rows = await outbox.mark(A, 1)
        assert ids_of(rows) == [id_]
        assert await outbox.purge(A, rows) == Purged()
        terminate = "SELECT count(pg_terminate_backend(pid, 60000)) FROM pg_stat_activity"
        (ended,) = place.run(f"{terminate} WHERE {own}")
        assert ended == (2,)
