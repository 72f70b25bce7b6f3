"""Stalled consumers are cut off and give way to others; slow ones stay."""

import time
from pathlib import Path

import pytest

from tests.e2e.streams import ByteStream, operation
from tests.kits.agents.agent import DEADLINE, Agent

FULL = "p" * 60_000


class HastyAgent(Agent):
    """Cuts a stalled stream off half a second after its end was due."""

    program = (
        "-c",
        "import sys, oplogd.stream.hub as hub, oplogd.cli;"
        " hub.END_GRACE_SECONDS = 0.5; sys.exit(oplogd.cli.main())",
    )


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
    with ByteStream(agent) as other:
        assert agent.post(operation("insert", "later")) == 204
        assert [event.operation["id"] for event in other.take(1)] == ["later"]
        agent.wait_status(clients=1)
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


def test_a_consumer_that_takes_a_little_now_and_then_is_not_cut_off(tmp_path: Path) -> None:
    """Its connection is as full as one that is cut off, and lasts several times as long."""
    timeout = 0.6
    flags = (
        "--max-clients",
        "2",
        "--stall-timeout",
        f"{timeout * 1000:.0f}ms",
        "--heartbeat",
        "200ms",
    )
    with (
        Agent(tmp_path, *flags) as agent,
        ByteStream(agent, receive_buffer=4096) as slow,
        ByteStream(agent, receive_buffer=4096),
    ):
        fill(agent)
        read = 0
        begun = time.monotonic()
        while agent.status()["clients"] == 2 or time.monotonic() - begun < 4 * timeout:
            slow.read(1024)
            read += 1024
            assert time.monotonic() - begun < DEADLINE, (
                "the consumer that reads nothing is still there"
            )
        assert agent.status()["clients"] == 1
        assert read < 6_000_000, "its connection was empty: it was not slow"
        slow.read_past(b"n11-16")
