"""Intake by UDP: its end, and its report of invalid datagrams."""

import asyncio
import contextlib
import itertools
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from oplogd.clock import Clock, now_ms
from oplogd.ingest.counters import IngestCounters
from oplogd.ingest.ignored import IgnoredMembers
from oplogd.ingest.queue import IngestQueue
from oplogd.ingest.udp import UdpIngest, open_sockets
from oplogd.model.operation import format_ms
from tests.kits.models.operations import operation
from tests.kits.processes.logged import DEADLINE

CALLS = 8
A_CALL = 16
# Fits into the receive buffer of an ordinary user.
HELD = CALLS * A_CALL

VALID = b'{"event":"insert","type":"video","id":"a"}'


async def test_a_stop_reads_the_datagrams_in_the_kernel_in_turns_with_other_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oplogd.ingest.udp.DATAGRAMS_PER_CALL", A_CALL)
    (sock,) = open_sockets([(socket.AF_INET, "127.0.0.1", 0)])
    counters = IngestCounters()
    queue = IngestQueue(10 * HELD, 1 << 30)
    ingest = UdpIngest([sock], queue, counters, IgnoredMembers(counters))
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
    assert (counters.received, queue.count) == (HELD, HELD)


def costly() -> tuple[UdpIngest, IngestCounters, socket.socket]:
    """Return intake for which a millisecond passes with each datagram."""
    (sock,) = open_sockets([(socket.AF_INET, "127.0.0.1", 0)])
    counters = IngestCounters()
    seconds = itertools.count(0, 0.001)
    clock = Clock(monotonic=lambda: next(seconds))
    queue = IngestQueue(1000, 1 << 30)
    return UdpIngest([sock], queue, counters, IgnoredMembers(counters), clock), counters, sock


async def test_the_rest_of_a_call_that_took_too_long_is_read_without_a_further_datagram() -> None:
    ingest, counters, sock = costly()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(9):
            sender.sendto(VALID, sock.getsockname())
    ingest.start()
    async with asyncio.timeout(DEADLINE):
        while counters.received < 9:
            await asyncio.sleep(0)
    await ingest.stop()
    assert counters.received == 9


async def test_a_flood_is_read_once_in_a_turn_of_the_loop() -> None:
    """Each call ends after two datagrams, for their time, and more wait in memory and kernel."""
    ingest, counters, sock = costly()
    read = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        ingest.start()
        for _ in range(100):
            for _ in range(4):
                sender.sendto(VALID, sock.getsockname())
            before = counters.received
            await asyncio.sleep(0)
            read.append(counters.received - before)
    await ingest.stop()
    assert set(read) <= {0, 2, 4}  # two turns between two looks
    assert counters.received == 400


async def test_a_call_ends_after_three_milliseconds_of_costly_datagrams() -> None:
    ingest, counters, sock = costly()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(9):
            sender.sendto(VALID, sock.getsockname())
    read = []
    stopping = asyncio.create_task(ingest.stop())
    while not stopping.done():
        await asyncio.sleep(0)
        read.append(counters.received)
    assert sorted(set(read)) == [2, 4, 6, 8, 9]


@contextlib.asynccontextmanager
async def reading(
    host: str = "127.0.0.1",
) -> AsyncIterator[tuple[UdpIngest, IngestCounters, tuple[Any, ...]]]:
    """Yield intake that reads when the test stops it, and its address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    (sock,) = open_sockets([(family, host, 0)])
    counters = IngestCounters()
    ingest = UdpIngest([sock], IngestQueue(1000, 1 << 30), counters, IgnoredMembers(counters))
    try:
        yield ingest, counters, sock.getsockname()
    finally:
        sock.close()


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "oplogd.udp"]


async def test_the_log_names_the_first_refused_datagram_and_its_sender_and_counts_all(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("oplogd.ingest.udp.QUIET_SECONDS", 0)
    async with reading() as (ingest, counters, address):
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as first,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
        ):
            for sender, raw in (
                (first, b"{}"),
                (other, b"[]"),
                (other, b"x"),
                (first, VALID),
                (other, b""),
            ):
                sender.sendto(raw, address)
            port = first.getsockname()[1]
        await ingest.stop()
        assert (counters.received, counters.error, ingest.refused.count) == (5, 4, 4)
        begin, end = told(caplog)
        problem = "refusing invalid operations that come by UDP"
        assert begin == f"{problem}: from 127.0.0.1:{port}: event: is required"
        assert end.startswith(f"{problem}: over, 4 times in ")


async def test_the_last_refused_datagrams_are_remembered() -> None:
    async with reading() as (ingest, _, address):
        before = now_ms()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for number in range(30):
                sender.sendto(b"%d \xff\x1b[1m" % number + "\u202e".encode() + b"x" * 500, address)
            sender.sendto(VALID, address)
            port = sender.getsockname()[1]
        await ingest.stop()
        described = ingest.refused.described()
        assert [each["data"][:23] for each in described] == [
            rf"{n} \xff\x1b[1m\u202exxx"[:23] for n in range(29, 9, -1)
        ]
        assert {each["sender"] for each in described} == {f"127.0.0.1:{port}"}
        assert {each["reason"] for each in described} == {"operation: is not UTF-8 (byte 3)"}
        assert all(format_ms(before) <= each["time"] <= format_ms(now_ms()) for each in described)
        assert all(len(each["data"]) < 220 for each in described)


async def test_a_socket_for_both_families_names_an_ipv4_sender_as_ipv4() -> None:
    async with reading("::") as (ingest, _, address):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"{}", ("127.0.0.1", address[1]))
            port = sender.getsockname()[1]
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as six:
            six.sendto(b"{}", ("::1", address[1]))
            other = six.getsockname()[1]
        await ingest.stop()
        assert [each["sender"] for each in ingest.refused.described()] == [
            f"[::1]:{other}",
            f"127.0.0.1:{port}",
        ]
