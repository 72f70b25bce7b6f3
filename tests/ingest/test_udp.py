"""The end of UDP intake: all that the kernel holds is taken, and nothing that comes later."""

import asyncio
import socket

import pytest

from oplogd.ingest.counters import Counters
from oplogd.ingest.queue import IngestQueue
from oplogd.ingest.udp import UdpIngest, open_sockets
from tests.operations import operation

CALLS = 8
A_CALL = 16
HELD = CALLS * A_CALL
"""Few enough for the receive buffer that anybody gets."""


async def test_a_stop_takes_the_datagrams_that_the_kernel_holds_in_turns_with_other_work_and_no_later_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oplogd.ingest.udp._DATAGRAMS_A_CALL", A_CALL)
    (sock,) = open_sockets([(socket.AF_INET, "127.0.0.1", 0)])
    counters = Counters()
    queue = IngestQueue(10 * HELD, 1 << 30)
    ingest = UdpIngest([sock], queue, counters)
    raw = operation().data.replace(b"{", b'{"event":"insert",', 1)
    address = sock.getsockname()
    turns = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:

        async def send_more() -> None:
            nonlocal turns
            while True:
                sender.sendto(raw, address)
                turns += 1
                await asyncio.sleep(0)

        for _ in range(HELD):
            sender.sendto(raw, address)
        stopping = asyncio.create_task(ingest.stop())
        flood = asyncio.create_task(send_more())  # begins after the first call of the stop
        await stopping
        flood.cancel()
    assert turns >= CALLS - 1
    assert (counters.received, queue.operations) == (HELD, HELD)
