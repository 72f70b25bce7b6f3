"""Reading the states by the page, in the order of their time, and counting deleted ones."""

import contextlib

import pymongo
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import OperationFailure, PyMongoError

from oplogd.errors import StoreUnavailableError
from oplogd.store.base import State, StateCursor, StatesPage
from oplogd.store.mongo.link import layout
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.read_size import READ_CHARACTERS, ReadSize

# How long the server may count deleted states, in the background.
_COUNT_SECONDS = 60.0


class StatePages:
    def __init__(self, link: Link) -> None:
        self._link = link
        self._read_size = ReadSize()

    async def page(
        self,
        start: StateCursor,
        upto: int,
        limit: int,
        *,
        live_only: bool,
        deleted_only: bool = False,
    ) -> StatesPage:
        event = "insert" if live_only else "delete" if deleted_only else None
        async with self._link.reading() as session:
            if event is not None:
                # The folding agent may not have created this index yet.
                with contextlib.suppress(OperationFailure):
                    return await self._page(
                        start, upto, limit, layout.LIVE_STATES_ORDER, session, event
                    )
            return await self._page(start, upto, limit, layout.STATES_ORDER, session, event)

    async def count_deleted(self) -> tuple[int | None, float]:
        """Return the number of tombstones (None if counting takes too long), and the seconds."""
        started = self._link.clock.monotonic()
        count: int | None = None
        # Without an answer the figure is missing. `stats` tells when the server is unreachable.
        with contextlib.suppress(PyMongoError), pymongo.timeout(_COUNT_SECONDS):
            count = await self._link.states.count_documents({"event": "delete"})
        return count, self._link.clock.monotonic() - started

    async def _page(
        self,
        start: StateCursor,
        upto: int,
        limit: int,
        index: list[tuple[str, int]],
        session: AsyncClientSession | None,
        event: str | None,
    ) -> StatesPage:
        """Read a page by an index.

        The hint makes the server refuse a collection without the index: one dropped, and filled
        again by the fold.
        """
        found: list[State] = []
        size = 0
        for chosen in layout.states_past(start, upto, event):
            cursor = (
                self._link.states.find(chosen, session=session)
                .sort(layout.STATES_ORDER)
                .hint(index)
            )
            left = limit - len(found)
            batch_size = self._read_size.documents(left, READ_CHARACTERS - size)
            async with cursor.limit(left).batch_size(batch_size):
                async for document in cursor:
                    found.append(layout.state(document, self._link.damage))
                    size += len(found[-1].data)
                    if size > READ_CHARACTERS:
                        break
            if len(found) == limit or size > READ_CHARACTERS:
                break
        self._read_size.saw(size, len(found))
        is_full = len(found) == limit or size > READ_CHARACTERS
        if not is_full and upto:
            await require_states(self._link, session)
        return StatesPage(found, found[-1].cursor if is_full else None)


async def require_states(link: Link, session: AsyncClientSession | None) -> None:
    """Raise StoreUnavailableError if the states were dropped: a copy would be incomplete."""
    if len(await link.states.index_information(session=session)) < 2:
        raise StoreUnavailableError(
            f"MongoDB at {link.hosts}: the collection {layout.STATES} was dropped; the agent that"
            " folds repairs it"
        )
