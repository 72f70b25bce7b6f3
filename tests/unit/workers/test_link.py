"""The words between a worker and its supervisor."""

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

from oplogd.host.link import DRAIN, READY, SHUT, STOP, Link, pair, send


class Line(NamedTuple):
    link: Link
    theirs: socket.socket
    stops: asyncio.Queue[None]


@pytest.fixture
async def line() -> AsyncIterator[Line]:
    theirs, ours = pair()
    with theirs, ours:
        stops: asyncio.Queue[None] = asyncio.Queue()
        link = Link(ours)
        link.listen(lambda: stops.put_nowait(None))
        yield Line(link, theirs, stops)
        asyncio.get_running_loop().remove_reader(ours)


async def test_a_worker_tells_that_it_serves(line: Line) -> None:
    line.link.ready(b"{}")
    assert line.theirs.recv(100) == READY + b" {}"


async def test_each_order_to_stop_is_passed_on(line: Line) -> None:
    assert not line.link.is_stopping
    send(line.theirs, STOP)
    send(line.theirs, STOP)
    await line.stops.get()
    await line.stops.get()
    assert line.link.is_stopping
    assert not line.link.is_cut


async def test_a_worker_that_is_shut_waits_for_the_others(line: Line) -> None:
    send(line.theirs, STOP)
    await line.stops.get()
    shut = asyncio.create_task(line.link.shut())
    await asyncio.sleep(0)
    assert line.theirs.recv(100) == SHUT
    assert not shut.done()
    send(line.theirs, DRAIN)
    await shut


async def test_a_worker_that_ends_alone_waits_for_nobody(line: Line) -> None:
    await line.link.shut()
    line.theirs.setblocking(False)
    with pytest.raises(BlockingIOError):
        line.theirs.recv(100)


async def test_the_end_of_the_supervisor_is_one_order_to_stop_and_ends_the_wait(line: Line) -> None:
    line.theirs.close()
    await line.stops.get()
    assert line.link.is_cut
    await line.link.shut()
    assert line.stops.empty()


async def test_the_end_of_the_supervisor_during_a_stop_is_no_second_order(line: Line) -> None:
    send(line.theirs, STOP)
    await line.stops.get()
    shut = asyncio.create_task(line.link.shut())
    await asyncio.sleep(0)
    line.theirs.close()
    await shut
    assert line.stops.empty()
