"""A connection of PyMongo that is cancelled leaves no socket."""

import asyncio
import socket

import pytest
from pymongo import pool_shared
from pymongo.pool_options import PoolOptions

from tests.kits.servers.pymongo_sockets import close_cancelled_connections


async def test_a_connect_that_is_cancelled_closes_its_socket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    close_cancelled_connections()
    connecting: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()

    async def connect(sock: socket.socket, _: object) -> None:
        connecting.set_result(sock)
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", connect)
    made = asyncio.ensure_future(
        pool_shared._async_create_connection(("127.0.0.1", 9), PoolOptions())
    )
    sock = await connecting
    assert sock.fileno() >= 0
    made.cancel()
    with pytest.raises(asyncio.CancelledError):
        await made
    assert sock.fileno() == -1
