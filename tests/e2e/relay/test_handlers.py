"""Handlers of a program that embeds a relay."""

from pathlib import Path

import pytest

from tests.kits.mongo.agents import wait_for
from tests.kits.proxies.http import HttpProxy
from tests.kits.relay.chain import LONG, SHORT, Chain
from tests.kits.relay.processes import LOST

pytestmark = [
    pytest.mark.parametrize("chain", ["embedded"], indirect=True),
    pytest.mark.parametrize("agents", ["sqlite"], indirect=True),
]


def test_handler_of_revoked_delays_the_hand_over(chain: Chain, tmp_path: Path) -> None:
    delay = tmp_path / "delay"
    delay.touch()
    environ = {"OPLOG_TEST_DELAY": str(delay)}
    with (
        HttpProxy(chain.agents[0].port) as proxy,
        chain.relay(limits=LONG, environ=environ) as leader,
    ):
        term = leader.wait_leads()
        with chain.relay(proxy.url, limits=LONG) as standby:
            leader.process.terminate()
            leader.wait_log("handler of LeaderRevoked begins")
            # The standby polls, and does not lead.
            polls = len(proxy.polls)
            wait_for("polls", lambda: len(proxy.polls) > polls + 5)
            assert not any(poll.leader for poll in proxy.polls)
            assert chain.lease()["term"] == term
            delay.unlink()
            assert leader.wait() == 0
            assert leader.count("handler of LeaderRevoked is done") == 1
            assert standby.wait_leads() == term + 1
            chain.insert(10, keys=5)
            assert chain.check() == 0


def test_handler_of_fenced_delays_nothing(chain: Chain, tmp_path: Path) -> None:
    delay = tmp_path / "delay"
    delay.touch()
    environ = {"OPLOG_TEST_DELAY": str(delay)}
    with (
        HttpProxy(chain.agents[0].port) as proxy,
        chain.relay(proxy.url, limits=SHORT, environ=environ) as leader,
    ):
        term = leader.wait_leads()
        with chain.relay(limits=SHORT) as standby:
            proxy.disconnect()
            leader.wait_log("handler of LeaderFenced begins")
            assert leader.count(LOST) == 1
            # Another relay leads and sends, although the handler still waits.
            assert standby.wait_leads() > term
            chain.insert(10, keys=5)
            assert chain.check() == 0
            assert leader.count("handler of LeaderFenced is done") == 0
            delay.unlink()
            leader.wait_log("handler of LeaderFenced is done")
