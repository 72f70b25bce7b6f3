"""A leader that dies, stands still or stops leaves every key in order.

``tests/unit/relay/test_engine_leaders.py`` has these cases and more on a clock of its own.
"""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from tests.kits.mongo.agents import wait_for
from tests.kits.proxies.http import Disturbance, Fault, HttpProxy
from tests.kits.relay.chain import LONG, SHORT, Chain
from tests.kits.relay.processes import CONTINUES, ENDS, LOST, RelayProcess

IN_FLIGHT = 1_000


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
    term = pair.standby.wait_leads()
    assert term > pair.term
    polls = [*itertools.takewhile(lambda poll: not poll.leader, pair.standbys_agent.polls)]
    assert {poll.term for poll in polls} == {term - 1}
    # The last of them may have come in the very millisecond of the end. Agents on MongoDB reckon
    # with its clock as each has learned it, so one may see a little more than a session.
    assert [poll for poll in polls[:-1] if poll.expires_in_ms <= 0] == []
    assert polls[-1].expires_in_ms >= 0


def hold_all(pair: Pair, chain: Chain) -> Disturbance:
    """Hold all that the leader sends, until as many rows are in flight as it allows."""
    held = pair.leaders_agent.disturb(Fault.HOLD, times=1_000_000)
    chain.insert(IN_FLIGHT + 300, keys=IN_FLIGHT + 300)
    wait_for("rows in flight", lambda: chain.table.marked() == IN_FLIGHT)
    pair.leaders_agent.wait_reached(held)
    return held


def kind(chain: str, agents: str, outbox: str) -> pytest.MarkDecorator:
    """Run a test with this program, store and database: each of the three has others."""
    return pytest.mark.parametrize(
        ("chain", "agents", "outbox"),
        [pytest.param(chain, agents, outbox, id=f"{chain}-{agents}-{outbox}")],
        indirect=True,
    )


@kind("standalone", "mongo-plain", "postgres")
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
@kind("standalone", "sqlite", "postgres")
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
        # The line names the reason that it announces.
        assert not relays.leader.wait_log(LOST).endswith(" \n")
        assert [met.status for met in relays.leaders_agent.end(held)] == [412]
        writer.wait_rows(writer.rows + 50, 60)
        writer.stop()
        chain.check()
        assert relays.leader.stop() == 0
        assert relays.standby.stop() == 0


@kind("embedded", "sqlite", "sqlite-outbox")
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
