"""Stalled consumers are cut off and give way to others; slow ones stay."""

import time
from pathlib import Path

import pytest

from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.agents.streams import ByteStream, operation
from tests.kits.clock.moved import MovedAgent, MovedClock

FULL = "p" * 60_000
HOUR = 3_600
# More than the kernel holds for a stream with a small receive buffer.
PART = 256 * 1024


def fill(agent: Agent, megabytes: int = 12) -> None:
    """Post more than a connection's buffers hold."""
    for first in range(megabytes):
        assert (
            agent.post([operation("update", f"n{first}-{n}", "thing", FULL) for n in range(17)])
            == 200
        )


def assert_cut_off(stream: ByteStream, agent: Agent, clock: MovedClock, step: float) -> None:
    """Assert that the stream ends early and that another consumer gets its place.

    ``step``: seconds that pass between two looks at the agent.
    """
    deadline = time.monotonic() + DEADLINE
    while agent.status()["clients"]:
        assert time.monotonic() < deadline, "it is still there"
        clock.move(step)
    with ByteStream(agent) as other:
        assert agent.post(operation("insert", "later")) == 204
        assert [event.operation["id"] for event in other.take(1)] == ["later"]
        agent.wait_status(clients=1)
    assert len(list(stream.blocks())) < 12 * 17


def test_a_consumer_that_takes_no_byte_for_the_stall_timeout_is_cut_off(
    tmp_path: Path,
) -> None:
    clock = MovedClock(tmp_path)
    flags = ("--max-clients", "1", "--stall-timeout", "1h")
    with (
        MovedAgent(tmp_path, *flags, environ=clock.environ) as agent,
        ByteStream(agent, receive_buffer=4096) as stalled,
    ):
        fill(agent)
        assert_cut_off(stalled, agent, clock, HOUR / 4)
        agent.wait_log("--stall-timeout")


@pytest.mark.parametrize("stall_timeout", ["0", "100h"])
def test_a_consumer_that_takes_nothing_is_cut_off_after_its_end_was_due(
    tmp_path: Path, stall_timeout: str
) -> None:
    clock = MovedClock(tmp_path)
    flags = ("--max-clients", "1", "--max-connection-age", "1m", "--stall-timeout", stall_timeout)
    with (
        MovedAgent(tmp_path, *flags, environ=clock.environ) as agent,
        ByteStream(agent, receive_buffer=4096) as stalled,
    ):
        fill(agent)
        assert_cut_off(stalled, agent, clock, 5)
        agent.wait_log("its end was due")


def test_a_consumer_that_takes_a_little_now_and_then_is_not_cut_off(tmp_path: Path) -> None:
    """Its connection is as full as one that is cut off, and lasts several times as long."""
    clock = MovedClock(tmp_path)
    flags = ("--max-clients", "3", "--stall-timeout", "1h", "--heartbeat", "25s")
    with (
        MovedAgent(tmp_path, *flags, environ=clock.environ) as agent,
        ByteStream(agent, receive_buffer=4096) as slow,
        ByteStream(agent, receive_buffer=4096),
        ByteStream(agent, query={"types": "none"}) as looks,
    ):
        fill(agent)
        for _ in range(8):
            slow.read(PART)
            clock.move(HOUR / 2)
            looks.next_heartbeat()
        agent.wait_status(clients=2)  # the one that reads nothing has gone
        agent.wait_log("--stall-timeout")
        slow.read_past(b"n11-16")
