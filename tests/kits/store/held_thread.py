"""The thread of a pool of SQLite, held by a test."""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator

from oplogd.store.sqlite.file.pool import ConnectionPool


@contextlib.asynccontextmanager
async def held_thread(pool: ConnectionPool) -> AsyncIterator[None]:
    """Hold the only thread of a pool during the block. Calls of tasks begun there wait."""
    begun, free = threading.Event(), threading.Event()

    def wait(_: sqlite3.Connection) -> None:
        begun.set()
        free.wait()

    call = asyncio.create_task(pool.run(wait))
    await asyncio.to_thread(begun.wait)
    try:
        yield
        await turns()
    finally:
        free.set()
        await call


async def turns() -> None:
    """Let tasks that are ready run a few times."""
    for _ in range(5):
        await asyncio.sleep(0)
