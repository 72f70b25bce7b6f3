"""A leader that dies, stands still, is cut off or stops leaves every key in order."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from tests.kits.proxies.http import LEASE, Disturbance, Fault, HttpProxy
from tests.mongo.agents import wait_for
from tests.relay.e2e.chain import LONG, SHORT, Chain
from tests.relay.e2e.processes import CONTINUES, ENDS, LOST, RelayProcess

IN_FLIGHT = 1_000
# Every kind of program, store and database; all pairs of two of them would show little more.
KINDS = [
    pytest.param("standalone", "sqlite", "postgres", id="standalone-sqlite-postgres"),
    pytest.param("standalone", "mongo-plain", "postgres", id="standalone-mongo-plain-postgres"),
    pytest.param("embedded", "sqlite", "sqlite-outbox", id="embedded-sqlite-sqlite-outbox"),
]
ON_POSTGRES = [
    *KINDS[:2],
    pytest.param("embedded", "sqlite", "postgres", id="embedded-sqlite-postgres"),
]
every_kind = pytest.mark.parametrize(("chain", "agents", "outbox"), KINDS, indirect=True)


class Pair(NamedTuple):
    """A leader and its standby, each with a proxy before its agent, on the same store."""

    leader: RelayProcess
    standby: RelayProcess
    leaders_agent: HttpProxy
    standbys_agent: HttpProxy
    term: int


@contextmanager
def pair(chain: Chain, limits: dict[str, float] = SHORT) -> Iterator[Pair]:
    with (
        HttpProxy(chain.agents[0].port) as first,
        HttpProxy(chain.agents[-1].port) as second,
        chain.relay(first.url, limits=limits) as leader,
    ):
        term = leader.wait_leads()
        with chain.relay(second.url, limits=limits) as standby:
            wait_for("a poll of the standby", lambda: second.polls)
            yield Pair(leader, standby, first, second, term)


def standby_leads_when_the_lease_is_over(pair: Pair) -> None:
    """Wait until the standby leads: at its first poll after the end of a session, not later."""
    assert pair.standby.wait_leads() > pair.term
    polls = [*itertools.takewhile(lambda poll: not poll.leader, pair.standbys_agent.polls)]
    assert {poll.term for poll in polls} == {pair.term}
    assert all(0 < poll.expires_in_ms <= 1000 * SHORT["session"] for poll in polls)


def hold_all(pair: Pair, chain: Chain) -> Disturbance:
    """Hold all that the leader sends, until as many rows are in flight as it allows."""
    held = pair.leaders_agent.disturb(Fault.HOLD, times=1_000_000)
    chain.insert(IN_FLIGHT + 300, keys=IN_FLIGHT + 300)
    wait_for("rows in flight", lambda: chain.table.marked() == IN_FLIGHT)
    pair.leaders_agent.wait_reached(held)
    return held


@every_kind
def test_standby_of_a_killed_leader_sends_the_rows_in_flight_and_late_requests_are_refused(
    chain: Chain,
) -> None:
    with pair(chain) as relays:
        held = hold_all(relays, chain)
        relays.leader.kill()
        standby_leads_when_the_lease_is_over(relays)
        chain.wait_empty()
        # Requests of the killed leader arrive after all of the standby's.
        assert {met.status for met in relays.leaders_agent.end(held)} == {412}
    assert chain.check() == 0


# Not on SQLite: a process that stands still inside of a transaction locks the file for everyone.
@pytest.mark.parametrize(("chain", "agents", "outbox"), ON_POSTGRES, indirect=True)
def test_leader_that_stands_still_while_it_sends_is_fenced_and_reverses_nothing(
    chain: Chain,
) -> None:
    with pair(chain) as relays:
        writer = chain.write(keys=50, seed=1)
        writer.wait_rows(100, 60)
        held = relays.leaders_agent.disturb(Fault.HOLD)
        relays.leaders_agent.wait_reached(held)
        relays.leader.freeze()
        standby_leads_when_the_lease_is_over(relays)
        writer.wait_rows(writer.rows + 100, 60)
        relays.leader.thaw()
        relays.leader.wait_log(LOST)
        assert [met.status for met in relays.leaders_agent.end(held)] == [412]
        writer.wait_rows(writer.rows + 50, 60)
        writer.stop()
        chain.check()
        assert relays.leader.stop() == 0
        assert relays.standby.stop() == 0


@every_kind
def test_leader_without_network_fences_itself_and_its_late_requests_are_refused(
    chain: Chain,
) -> None:
    with pair(chain) as relays:
        writer = chain.write(keys=50, seed=2)
        writer.wait_rows(100, 60)
        held = relays.leaders_agent.disturb(Fault.HOLD)
        relays.leaders_agent.wait_reached(held)
        relays.leaders_agent.freeze()
        relays.leader.wait_log(LOST)
        standby_leads_when_the_lease_is_over(relays)
        writer.wait_rows(writer.rows + 100, 60)
        relays.leaders_agent.thaw()
        assert [met.status for met in relays.leaders_agent.end(held)] == [412]
        writer.stop()
        chain.check()
        # No line ends without the reason that it announces.
        assert relays.leader.count(" \n") == 0
        # It is a candidate again, and leads after the other one.
        polls = len(relays.leaders_agent.polls)
        wait_for("a poll", lambda: len(relays.leaders_agent.polls) > polls)
        relays.standby.kill()
        assert relays.leader.wait_leads(2) > relays.term + 1


@every_kind
def test_clean_stop_sends_the_rows_in_flight_and_hands_over_at_once(chain: Chain) -> None:
    with pair(chain, LONG) as relays:
        held = hold_all(relays, chain)
        relays.leader.process.terminate()
        relays.leaders_agent.end(held)
        assert relays.leader.wait() == 0
        assert relays.leader.count(ENDS) == 1
        # The session lasts for longer than this test waits: the lease was given up.
        assert relays.standby.wait_leads() == relays.term + 1
        assert chain.check() == 0
        assert relays.standby.count(CONTINUES) == 0


@pytest.mark.parametrize(("chain", "agents"), [("standalone", "sqlite")], indirect=True)
def test_lost_answer_to_a_poll_changes_nothing(chain: Chain) -> None:
    with pair(chain, LONG) as relays:
        lost = relays.leaders_agent.disturb(Fault.LOSE_ANSWER, LEASE, times=3)
        relays.leaders_agent.wait_reached(lost, 3)
        chain.insert(100, keys=10)
        assert chain.check() == 0
        assert chain.lease()["term"] == relays.term
        assert relays.leader.count(LOST) == relays.leader.count(CONTINUES) == 0
