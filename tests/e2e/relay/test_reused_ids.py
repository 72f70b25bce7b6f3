"""A table that is emptied, and whose ids begin anew, while rows are in flight."""

import pytest

from tests.kits.proxies.http import Fault, HttpProxy
from tests.kits.relay.chain import LONG, Chain

KEYS = 100


@pytest.mark.parametrize("agents", ["sqlite"], indirect=True)
@pytest.mark.parametrize("outbox", ["postgres", "sqlite-outbox"], indirect=True)
def test_new_rows_with_the_ids_of_rows_in_flight_arrive_after_them(chain: Chain) -> None:
    """Old rows may have arrived or not: they were deleted in flight."""
    restart = (
        ["TRUNCATE outbox RESTART IDENTITY"]
        if chain.table.url.startswith("postgres")
        else ["DELETE FROM outbox", "DELETE FROM sqlite_sequence WHERE name = 'outbox'"]
    )
    with HttpProxy(chain.agents[0].port) as proxy:
        limits = {**LONG, "shards": 1}
        held = proxy.disturb(Fault.HOLD)
        with chain.relay(proxy.url, limits=limits) as relay:
            relay.wait_leads()
            chain.insert(KEYS, keys=KEYS, topics=chain.topics[:1])
            proxy.wait_reached(held)
            with chain.table.session() as session:
                for statement in restart:
                    session.execute(statement)
                session.commit()
            chain.insert(KEYS, keys=KEYS, topics=chain.topics[:1])
            proxy.end(held)
            chain.wait_empty()
            assert relay.stop() == 0
    arrived: dict[str, list[int]] = {}
    for arrival in chain.arrivals():
        arrived.setdefault(arrival.key, []).append(arrival.number)
    assert len(arrived) == KEYS
    for numbers in arrived.values():
        assert numbers == sorted(numbers)
        assert numbers[-1] == 1
