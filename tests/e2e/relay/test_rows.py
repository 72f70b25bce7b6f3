"""Rows that fail once, that the agent refuses for good, or that are committed late."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kits.agents.agent import DEADLINE
from tests.kits.mongo.agents import wait_for
from tests.kits.processes.forked import run
from tests.kits.proxies.http import Fault, HttpProxy
from tests.kits.relay.chain import LONG, Chain
from tests.kits.relay.checker import Arrival, Sent
from tests.kits.relay.outbox import OPLOG
from tests.kits.relay.processes import CONTINUES

ROWS = 10_000
agents_of_each_kind = pytest.mark.parametrize("agents", ["sqlite", "mongo-plain"], indirect=True)
on_sqlite = pytest.mark.parametrize("agents", ["sqlite"], indirect=True)


def numbers(chain: Chain, arrivals: list[Arrival], key: str) -> list[int]:
    return [arrival.number for arrival in arrivals if arrival.key == chain.key(key)]


@agents_of_each_kind
@pytest.mark.parametrize(
    ("chain", "outbox"),
    [("standalone", "postgres"), ("embedded", "sqlite-outbox")],
    indirect=True,
    ids=["standalone-postgres", "embedded-sqlite-outbox"],
)
def test_row_that_fails_once_is_sent_again_before_the_next_one_of_its_key(chain: Chain) -> None:
    with HttpProxy(chain.agents[0].port) as proxy:
        faults = {
            "refused": proxy.disturb(Fault.UNAVAILABLE, words=b"refused 1"),
            "unsent": proxy.disturb(Fault.LOSE_REQUEST, words=b"unsent 1"),
            "unanswered": proxy.disturb(Fault.LOSE_ANSWER, words=b"unanswered 1"),
        }
        for key in faults:
            chain.table.insert(*(chain.row(key) for _ in range(3)))
        with chain.relay(proxy.url, limits=LONG) as relay:
            chain.wait_empty()
            terms = chain.lease()["term"]
            assert terms > 1
            relay.wait_log(CONTINUES, terms - 1)
            assert relay.count(CONTINUES) == terms - 1
    chain.check()
    arrivals = chain.arrivals()
    # A row of another key may be in the request that fails, or in flight beside it.
    assert numbers(chain, arrivals, "unanswered").count(1) >= 2
    for key in ("refused", "unsent"):
        assert [*dict.fromkeys(numbers(chain, arrivals, key))] == [0, 1, 2]


@agents_of_each_kind
@pytest.mark.parametrize("chain", ["standalone", "embedded"], indirect=True)
def test_agent_that_answers_503_is_replaced_by_another_one_without_reversal(chain: Chain) -> None:
    with (
        HttpProxy(chain.agents[0].port) as first,
        HttpProxy(chain.agents[-1].port) as second,
        chain.relay(first.url, second.url, limits=LONG) as relay,
    ):
        writer = chain.write(keys=50, seed=3)
        writer.wait_rows(100, 60)
        with first.disturbed(Fault.UNAVAILABLE) as unavailable:
            first.wait_reached(unavailable)
            wait_for("rows through the second agent", lambda: second.statuses[200])
        by_first = first.statuses[200]
        with second.disturbed(Fault.UNAVAILABLE) as unavailable:
            second.wait_reached(unavailable)
            wait_for("rows through the first agent", lambda: first.statuses[200] > by_first)
        writer.stop()
        chain.check()
        assert relay.count(CONTINUES) >= 2


@agents_of_each_kind
@pytest.mark.parametrize("chain", ["standalone"], indirect=True)
def test_request_that_was_given_up_is_refused_when_it_arrives_late(chain: Chain) -> None:
    with (
        HttpProxy(chain.agents[0].port) as first,
        HttpProxy(chain.agents[-1].port) as second,
        chain.relay(first.url, second.url, limits=LONG, request_timeout=5.0) as relay,
    ):
        relay.wait_leads()
        held = first.disturb(Fault.HOLD)
        chain.insert(300, keys=30)
        first.wait_reached(held)
        chain.wait_empty()
        relay.wait_log(CONTINUES)
        assert [met.status for met in first.end(held)] == [412]
    # Rows that were accepted beside it may be repeated with the new term.
    chain.check()


@on_sqlite
@pytest.mark.parametrize("chain", ["standalone", "embedded"], indirect=True)
def test_row_with_a_smaller_id_that_is_committed_later_is_sent_and_a_gap_stalls_nothing(
    chain: Chain,
) -> None:
    with chain.relay(limits=LONG), chain.table.session() as late, chain.table.session() as undone:
        (small,) = late.insert(chain.row("late"))
        undone.insert(chain.row("undone"))
        chain.committed.pop(chain.key("undone"))
        with chain.table.session() as early:
            (large,) = early.insert(chain.row("early"))
            early.commit()
        assert small < large
        wait_for("the row with the larger id", lambda: early_has_arrived(chain))
        late.commit()
        undone.rollback()
        assert chain.check() == 0


def early_has_arrived(chain: Chain) -> bool:
    arrivals = [arrival.key for arrival in chain.arrivals()]
    assert arrivals in ([], [chain.key("early")])
    return chain.table.rows() == 0 and bool(arrivals)


@on_sqlite
@pytest.mark.parametrize("chain", ["standalone"], indirect=True)
def test_poison_row_among_10_000_delays_its_key_only_and_skip_lets_the_rest_of_it_pass(
    chain: Chain, tmp_path: Path
) -> None:
    poisoned = chain.key("poison")
    before = [chain.row("poison", OPLOG) for _ in range(2)]
    poison = chain.row("poison", OPLOG)
    chain.committed[poisoned].remove(Sent(OPLOG, poison.number))
    behind = [chain.row("poison", topic) for topic in chain.topics for _ in range(2)]
    others = [chain.row(number % 1_000, OPLOG) for number in range(ROWS)]
    half = len(others) // 2
    with chain.table.session() as session:
        session.insert_many(others[:half])
        session.insert_many(before)
        (id_,) = session.insert(poison)
        session.execute("UPDATE outbox SET value = ? WHERE id = ?", '{"event": "no event"}', id_)
        session.insert_many(behind)
        session.insert_many(others[half:])
        session.commit()
    settings = chain.settings(limits=LONG, blocked_backoff=[0.05, 0.1], meter=0.1)
    with chain.relay(limits=LONG, blocked_backoff=[0.05, 0.1], meter=0.1) as relay:
        wait_for("all other rows", lambda: chain.table.rows() == 1 + len(behind))
        # Named in the log and in `status`, with the row to skip.
        line = relay.wait_log(poisoned)
        assert re.search(rf"\b{id_}\b", line), line
        wait_for(
            "the blocked key in status", lambda: poisoned in command("status", settings).stdout
        )
        status = command("status", settings)
        assert str(id_) in status.stdout
        assert chain.table.rows() == 1 + len(behind)
        assert [a.number for a in chain.arrivals() if a.key == poisoned] == [0, 1]
        skipped = command("skip", settings, str(id_), "--yes")
        assert skipped.returncode == 0, skipped
        assert chain.check() == 0
        assert relay.count(CONTINUES) == 0


def command(name: str, settings: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(
        [sys.executable, "-m", "oplog_relay", name, *arguments, "-f", str(settings)],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
