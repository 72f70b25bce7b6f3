"""Rows of the outbox that a transaction of the service has locked."""

import pytest

from tests.kits.mongo.agents import wait_for
from tests.kits.relay.chain import LONG, Chain
from tests.kits.relay.processes import CONTINUES


@pytest.mark.parametrize("agents", ["sqlite"], indirect=True)
def test_other_keys_pass_locked_rows_and_nothing_is_sent_twice(chain: Chain) -> None:
    chain.insert(100, keys=20)
    with chain.table.session() as session, chain.relay(limits=LONG) as relay:
        session.execute("SELECT FROM outbox WHERE id IN (1, 22) FOR UPDATE")
        relay.wait_leads()
        # Of the second key one row is before the locked one.
        wait_for("all other keys", lambda: chain.table.rows() == 5 + 4)
        chain.insert(100, keys=20)
        wait_for("later rows", lambda: chain.table.rows() == 10 + 9)
        session.rollback()
        assert chain.check() == 0
        assert relay.count(CONTINUES) == 0
