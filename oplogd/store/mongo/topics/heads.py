"""The newest entries of many logs by one look-up."""

import itertools
from collections.abc import Collection, Mapping
from typing import NamedTuple

from pymongo.asynchronous.client_session import AsyncClientSession

from oplogd.errors import StoreUnavailableError
from oplogd.model.event_id import Mark
from oplogd.store.mongo.link import topic_layout as layout
from oplogd.store.mongo.link.inserts import AskTime, server_seconds
from oplogd.store.mongo.link.layout import Document
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.notifier import Notifier
from oplogd.store.mongo.link.search import PROBES
from oplogd.store.mongo.topics.catalogue import Catalogue
from oplogd.store.numbers import begin_of

# Places in one look-up, unless there are more logs.
_PLACES = 1_000

# Logs whose heads are remembered.
_REMEMBERED = 20_000


class LogHead(NamedTuple):
    """The newest entry of a log, as a majority had it.

    In an empty log the mark before the next one. ``is_ended``: the topic was deleted.
    """

    mark: Mark
    is_ended: bool = False


class Heads(NamedTuple):
    """The heads of logs, deleted logs left out."""

    logs: Mapping[int, LogHead]
    asked: AskTime


class TopicHeads:
    """Methods raise StoreUnavailableError if ``oplog_entries`` was dropped.

    ``recent_seconds``: up to this age no sweep removes a remembered head. ``appended`` notifies of
    entries appended by this process.
    """

    def __init__(self, link: Link, catalogue: Catalogue, recent_seconds: float) -> None:
        self._link = link
        self._catalogue = catalogue
        self._recent_seconds = recent_seconds
        self._known: dict[int, tuple[LogHead, float]] = {}
        # The time in the seal, and the time at which another one was found: older heads do not
        # count.
        self._seal: object = None
        self._sealed_at = float("-inf")
        self.appended = Notifier()

    async def of(self, log: int) -> LogHead | None:
        """Return the head of a log; None if the log is gone."""
        return (await self.newest([log])).logs.get(log)

    async def newest(self, logs: Collection[int]) -> Heads:
        """Return the heads of logs.

        The remembered head of a log must still be there, with a dense row of fewer entries than
        asked for behind it. Otherwise the newest one is read from the log's range.
        """
        asked_at = self._link.clock.boot()
        known = {
            log: head
            for log in logs
            for head, seen_at in [self._known.get(log, (None, 0.0))]
            if head and asked_at - seen_at <= self._recent_seconds and seen_at >= self._sealed_at
        }
        probes = max(1, min(PROBES, _PLACES // max(1, len(known))))
        keys = [
            layout.place(log, offset)
            for log, head in known.items()
            for offset in range(head.mark.offset, head.mark.offset + 1 + probes)
        ]
        found: dict[int, LogHead] = {}
        async with self._link.reading() as session:
            documents = {
                each["_id"]: each
                async for each in self._link.entries.find(
                    {"_id": {"$in": [layout.SEAL, *keys]}}, layout.MARK_FIELDS, session=session
                ).batch_size(len(keys) + 2)
            }
            if self._is_sealed_again(documents):
                known = {}
            for log in logs:
                head = _behind(documents, log, known[log].mark, probes) if log in known else None
                head = head or await self.by_range(log, session)
                if head is None:
                    self._known.pop(log, None)
                else:
                    found[log] = head
                    self.saw(log, head, asked_at)
            return Heads(found, AskTime(asked_at, server_seconds(session)))

    def past(self, ms: int) -> dict[int, int]:
        """Return the times of the remembered heads past a time, by log."""
        known = [(log, head) for log, (head, _) in list(self._known.items()) if not head.is_ended]
        return {log: head.mark.ms for log, head in known if head.mark.ms > ms}

    def forget(self, log: int) -> None:
        self._known.pop(log, None)

    def _is_sealed_again(self, documents: Mapping[str, Document]) -> bool:
        """Return whether the catalogue was created again: then its logs may be gone."""
        if layout.SEAL not in documents:
            raise StoreUnavailableError(
                f"MongoDB at {self._link.hosts}: the collection {self._link.entries.name} is gone"
                " or was created again; topics wait until the agent that folds has set it up"
            )
        before, self._seal = self._seal, documents[layout.SEAL].get("ts")
        if before in (None, self._seal):
            return False
        self._sealed_at = self._link.clock.boot()
        return True

    async def by_range(self, log: int, session: AsyncClientSession | None = None) -> LogHead | None:
        """Return the head of a log; None if the log is gone."""
        newest = await self._link.entries.find_one(
            {"_id": layout.places_of(log)}, layout.MARK_FIELDS, sort=[("_id", -1)], session=session
        )
        document = await self._catalogue.of_log(log, session)
        if document is None:
            if newest is not None and newest["kind"] == layout.END:
                return LogHead(layout.mark_of(newest), is_ended=True)
            return None
        floor = layout.floor_of(document)
        if newest is None or layout.mark_of(newest).offset < floor.offset:
            return LogHead(floor)
        return _head(newest)

    def saw(self, log: int, head: LogHead, asked_at: float) -> None:
        """Remember a head asked for at a time, or an own entry behind it."""
        if len(self._known) >= _REMEMBERED and log not in self._known:
            self._known.clear()
        self._known[log] = head, asked_at


def _behind(
    documents: Mapping[str, Document], log: int, known: Mark, probes: int
) -> LogHead | None:
    """Return the head by the entries around a known one, None if it is not among them."""
    ahead = [
        layout.place(log, offset) for offset in range(known.offset + 1, known.offset + 1 + probes)
    ]
    passed = [documents[key] for key in itertools.takewhile(documents.__contains__, ahead)]
    if len(passed) == probes or any(key in documents for key in ahead[len(passed) :]):
        return None
    at = documents.get(layout.place(log, known.offset))
    if at is not None and layout.mark_of(at) == known:
        return _head((passed or [at])[-1])
    # The log was empty. If its first entries are not there, they may have left meanwhile.
    return _head(passed[-1]) if known.offset == begin_of(log) and passed else None


def _head(document: Document) -> LogHead:
    return LogHead(layout.mark_of(document), is_ended=document.get("kind") == layout.END)
