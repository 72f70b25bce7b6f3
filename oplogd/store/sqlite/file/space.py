"""The space under the SQLite file, for the agent."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from oplogd.errors import StoreUnavailableError
from oplogd.shared.place import WriterPlace
from oplogd.store.space import SpaceFigures
from oplogd.store.sqlite.file import statements as sql
from oplogd.store.sqlite.file.connection import StoreFile
from oplogd.store.sqlite.file.pool import ConnectionPool

# A reader that stays in an old state delays no look.
_PATIENCE = "; PRAGMA busy_timeout = 250"


class SqliteSpace:
    """See ``Space``. ``opened``: completes an opening without room. ``place``: see the pool."""

    def __init__(
        self,
        file: StoreFile,
        opened: Callable[[], Awaitable[None]],
        place: WriterPlace | None = None,
    ) -> None:
        self.name = f"store {file.path}"
        self._file = file
        self._opened = opened
        pragmas = sql.SMALL_CACHE + _PATIENCE
        self._pool = ConnectionPool(file, "store-space", 1, pragmas, place=place)

    @property
    def refused(self) -> bool:
        return self._file.disk.refused

    async def look(self) -> SpaceFigures:
        disk = self._file.disk
        figures = await asyncio.to_thread(disk.look)
        if not figures.is_low:
            return figures
        with suppress(StoreUnavailableError):
            await self._opened()
            is_short = figures.refused or figures.free < figures.limits.needed
            in_file = await self._pool.run(
                partial(self._free_pages, is_short=is_short),
                # To empty a log of this size gives more back than the reserve.
                frees_space=self._file.wal.size() > figures.limits.reserve,
            )
            figures = await asyncio.to_thread(disk.look, in_file)
        return figures

    async def close(self) -> None:
        await self._pool.close(interrupt=True)

    def _free_pages(self, db: sqlite3.Connection, *, is_short: bool) -> int:
        """Return the bytes in free pages. If space ``is_short``, empty the write-ahead log before.

        Its pages are then in the file, in free pages if there are any.
        """
        if is_short and self._file.wal.size():
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        pages: int = db.execute("PRAGMA freelist_count").fetchone()[0]
        size: int = db.execute("PRAGMA page_size").fetchone()[0]
        return pages * size
