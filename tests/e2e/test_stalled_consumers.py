"""Stalled consumers are cut off and give way to others; slow ones stay."""

import itertools
import signal
from pathlib import Path

import pytest

from tests.e2e.streams import ByteStream, operation
from tests.kits.agents.agent import Agent

FULL = "p" * 60_000


class HastyAgent(Agent):
    """Cuts a stalled stream off half a second after its end was due."""

    program = (
        "-c",
        "import sys, oplogd.stream.hub as hub, oplogd.cli;"
        " hub.END_GRACE_SECONDS = 0.5; sys.exit(oplogd.cli.main())",
    )


STEPPED = """
import asyncio, itertools, signal, sys, time
from oplogd.cli import main
from oplogd.stream.hub import Hub

async def tick(hub):
    begun = time.monotonic()
    looks = itertools.count(1)
    def look():
        number = next(looks)
        hub.look(begun + number)
        print("look", number, "is done", file=sys.stderr, flush=True)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, look)
    print("ready to look", file=sys.stderr, flush=True)
    await asyncio.Event().wait()

Hub.tick = tick
sys.exit(main())
"""


class SteppedAgent(Agent):
    """Looks at its consumers only when a test says so. For it a second passes with every look."""

    program = ("-c", STEPPED)

    def look(self, number: int) -> None:
        """Wait until the agent has looked for the time ``number``."""
        self.wait_log("ready to look")
        self.process.send_signal(signal.SIGUSR1)
        self.wait_log(f"look {number} is done")


def fill(agent: Agent, megabytes: int = 12) -> None:
    """Post more than a connection's buffers hold."""
    for first in range(megabytes):
        assert (
            agent.post([operation("update", f"n{first}-{n}", "thing", FULL) for n in range(17)])
            == 200
        )


def assert_cut_off(stream: ByteStream, agent: Agent) -> None:
    """Assert that the stream ends early and that another consumer gets its place."""
    agent.wait_status(clients=0)
    with ByteStream(agent):
        pass
    assert len(list(stream.blocks())) < 12 * 17


def test_a_consumer_that_takes_no_byte_for_the_stall_timeout_is_cut_off(
    tmp_path: Path,
) -> None:
    flags = ("--max-clients", "1", "--stall-timeout", "500ms", "--heartbeat", "200ms")
    with Agent(tmp_path, *flags) as agent, ByteStream(agent, receive_buffer=4096) as stalled:
        fill(agent)
        assert_cut_off(stalled, agent)
        agent.wait_log("--stall-timeout")


@pytest.mark.parametrize("stall_timeout", ["0", "1h"])
def test_a_consumer_that_takes_nothing_is_cut_off_after_its_end_was_due(
    tmp_path: Path, stall_timeout: str
) -> None:
    flags = ("--max-clients", "1", "--max-connection-age", "1s", "--stall-timeout", stall_timeout)
    with HastyAgent(tmp_path, *flags) as agent, ByteStream(agent, receive_buffer=4096) as stalled:
        fill(agent)
        assert_cut_off(stalled, agent)


def take_a_little(slow: ByteStream, agent: SteppedAgent, look: int) -> None:
    assert look < 50, "the consumer that reads nothing is still there"
    slow.read(65_536)
    agent.look(look)


def test_a_consumer_that_takes_a_little_now_and_then_is_not_cut_off(tmp_path: Path) -> None:
    """Its connection is as full as one that is cut off, and lasts several times as long."""
    with (
        SteppedAgent(tmp_path, "--max-clients", "2", "--stall-timeout", "3s") as agent,
        ByteStream(agent, receive_buffer=4096) as slow,
        ByteStream(agent, receive_buffer=4096),
    ):
        fill(agent)
        looks = itertools.count(1)
        while agent.status()["clients"] == 2:
            take_a_little(slow, agent, next(looks))
        for _ in range(4 * 3):
            take_a_little(slow, agent, next(looks))
        assert agent.status()["clients"] == 1
        slow.read_past(b"n11-16")
