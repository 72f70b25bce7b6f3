"""The regular work on the store, which one worker does for all."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

from oplogd.clock import Clock
from oplogd.config.settings import Settings
from oplogd.store import Store
from oplogd.stream.feeds import Feeds
from oplogd.tombstones import purge_tombstones
from oplogd.topics.keeper import keep, sweep_topics
from oplogd.topics.transactions.idle import retire_groups
from oplogd.workers.workers import Worker

_Work = Callable[[], Coroutine[Any, Any, None]]


class Upkeep:
    """The tasks of the upkeep. Another worker takes them over when the process of this one ends.

    Agents on MongoDB share them out by a lease in the store, and so do their workers.
    """

    def __init__(
        self, settings: Settings, store: Store, feeds: Feeds, clock: Clock, worker: Worker
    ) -> None:
        self._settings = settings
        self._store = store
        self._feeds = feeds
        self._clock = clock
        self._number = worker.number
        self._shared = worker.workers.store if store.kind == "sqlite" else None
        self._sweep_asked = asyncio.Event()

    def sweep_soon(self) -> None:
        """Sweep the topics now if that gives back space on a disk of this machine."""
        if self._store.space is None:
            return
        if self._shared is not None:
            self._shared.sweep.ring()
        else:
            self._sweep_asked.set()

    def tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Return the names and the work of the tasks."""
        settings, store, clock = self._settings, self._store, self._clock
        topics, txns, pointers = store.topics, store.transactions, store.pointers
        for name, work, ask, subject, log in (
            ("keeper of bounds", topics.shrink, topics.stats, "bounds of topics", "topics"),
            ("keeper of transactions", txns.keep, txns.stats, "transactions", "transactions"),
            ("keeper of pointers", pointers.keep, pointers.stats, "pointers", "pointers"),
        ):
            yield name, self._alone(partial(keep, work, ask, subject, log, clock=clock))
        cleanup, asked = settings.topic_cleanup, self._sweep_asked
        yield "sweep", self._alone(partial(sweep_topics, topics, cleanup, clock, asked))
        retire = partial(retire_groups, txns, self._feeds.is_followed, cleanup, clock)
        yield "keeper of groups", self._alone(retire)
        if retention := settings.tombstone_retention:
            yield "purge", self._alone(partial(purge_tombstones, store, retention, clock))
        if self._shared is not None:
            hear = partial(self._shared.sweep.listen, self._sweep_asked.set)
            yield "bell of the sweep", self._alone(hear)

    async def _alone(self, work: _Work) -> None:
        """Do work as soon as this worker has the upkeep."""
        if self._shared is not None:
            await self._shared.upkeep.taken(self._number, self._clock.sleep)
        await work()
