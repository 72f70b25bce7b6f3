"""A database that loses statements or answers, and an agent that is unreachable, lose no row."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.kits.mongo.agents import wait_for
from tests.kits.proxies.http import HttpProxy
from tests.kits.proxies.postgres import PostgresProxy, StatementFault
from tests.kits.relay.chain import LONG, SHORT, Chain
from tests.kits.relay.processes import BEGINS, CONTINUES, LOST
from tests.kits.servers.postgres import PostgresServer

on_sqlite = pytest.mark.parametrize("agents", ["sqlite"], indirect=True)
LOSE_ANSWER, LOSE_STATEMENT = StatementFault.LOSE_ANSWER, StatementFault.LOSE_STATEMENT
# Words that only one kind of the relay's statements has.
MARK, PURGE, RESET = "is null or", "delete", "= null"


@contextmanager
def through_proxy(chain: Chain, server: PostgresServer) -> Iterator[tuple[PostgresProxy, str]]:
    """Yield a proxy and the URL of the outbox through it."""
    with PostgresProxy(server.port) as proxy:
        yield proxy, f"{proxy.through(chain.table.url)}?sslmode=disable&gssencmode=disable"


@on_sqlite
@pytest.mark.parametrize("chain", ["standalone", "embedded"], indirect=True)
def test_statements_and_answers_that_are_lost_lose_no_row_and_reverse_nothing(
    chain: Chain, postgres: PostgresServer
) -> None:
    with (
        through_proxy(chain, postgres) as (proxy, url),
        chain.relay(database=url, limits=LONG) as relay,
    ):
        relay.wait_leads()
        writer = chain.write(keys=50, seed=4)
        for word in (MARK, PURGE):
            for fault in (LOSE_ANSWER, LOSE_STATEMENT):
                writer.wait_rows(writer.rows + 20, 60)
                terms = relay.count(CONTINUES)
                proxy.disturb(fault, word)
                proxy.wait_met()
                relay.wait_log(CONTINUES, terms + 1)
        for fault in (LOSE_ANSWER, LOSE_STATEMENT):
            # The reset after a failure fails, too.
            writer.wait_rows(writer.rows + 20, 60)
            terms = relay.count(CONTINUES)
            proxy.disturb(fault, PURGE, RESET)
            proxy.wait_met(2)
            relay.wait_log(CONTINUES, terms + 1)
        writer.stop()
        chain.check()
        assert relay.count(LOST) == 0


@on_sqlite
@pytest.mark.parametrize("chain", ["standalone"], indirect=True)
def test_database_that_is_away_is_waited_for(chain: Chain, postgres: PostgresServer) -> None:
    with (
        through_proxy(chain, postgres) as (proxy, url),
        chain.relay(database=url, limits=LONG) as relay,
    ):
        relay.wait_leads()
        writer = chain.write(keys=50, seed=5)
        writer.wait_rows(50, 60)
        proxy.disconnect()
        relay.wait_log(CONTINUES, 3)
        proxy.mend()
        writer.stop()
        chain.check()


@pytest.mark.parametrize(
    ("chain", "agents"), [("standalone", "mongo-plain"), ("embedded", "sqlite")], indirect=True
)
def test_agent_that_is_away_for_longer_than_every_limit_loses_no_row(chain: Chain) -> None:
    limits = {**SHORT, "queue_timeout": 3.0, "request_timeout": 2.0}
    with (
        HttpProxy(chain.agents[0].port) as proxy,
        chain.relay(proxy.url, limits=limits) as leader,
    ):
        term = leader.wait_leads()
        with chain.relay(proxy.url, limits=limits) as standby:
            writer = chain.write(keys=50, seed=6)
            wait_for("rows to be sent", lambda: proxy.statuses[200])
            proxy.disconnect()
            leader.wait_log(LOST)
            wait_for("the end of the lease", lambda: chain.lease()["expires_in_ms"] == 0)
            writer.wait_rows(writer.rows + 100, 60)
            proxy.mend()
            writer.stop()
            chain.check()
            assert chain.lease()["term"] > term
            assert leader.count(BEGINS) + standby.count(BEGINS) >= 2
