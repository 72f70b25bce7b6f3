"""Closes the sockets that PyMongo leaves open if a client is closed while it connects.

That is PYTHON-5867. The garbage collector would warn of them in a later test.
"""

import asyncio
import socket
import traceback
from typing import Any

from pymongo import pool_shared


def close_cancelled_connections() -> None:
    """Let a cancelled connect close its socket, in all clients of this process."""
    create = pool_shared._async_create_connection
    if create.__module__ == __name__:
        return

    async def create_and_close(address: Any, options: Any) -> socket.socket:
        try:
            return await create(address, options)
        except asyncio.CancelledError as error:
            for frame, _ in traceback.walk_tb(error.__traceback__):
                if isinstance(sock := frame.f_locals.get("sock"), socket.socket):
                    sock.close()
            raise

    pool_shared._async_create_connection = create_and_close
