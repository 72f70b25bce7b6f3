"""Read a store in MongoDB while agents write to it, each range with a cursor of its own.

Reads use the read concern "majority" and the URL's read preference. A range of the log, and states
up to an offset, need a member without lag. If the member lags, the primary is read.
"""

import asyncio
import contextlib
import itertools
import math
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeVar

from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo import MongoClient, ReadPreference
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import ConfigurationError, ConnectionFailure, CursorNotFound, PyMongoError
from pymongo.read_concern import ReadConcern

from oplog_sync.backend.base import (
    CHUNK_BYTES,
    CHUNK_ROWS,
    MOST_POINTERS,
    NEW_LOG,
    NewLog,
    OpenTopic,
    Range,
    StoreRow,
    Wanted,
)
from oplog_sync.backend.bounds import counted_bounds, sampled_bounds
from oplog_sync.backend.documents import OPERATION_TABLE, STATE_TABLE, MongoTable, past
from oplog_sync.errors import OptionError
from oplogd.errors import StoreError
from oplogd.model.event_id import Mark
from oplogd.model.names import TopicName, no_topic
from oplogd.store import LogBounds, sound_identity
from oplogd.store.mongo import MongoStore
from oplogd.store.mongo.interface.topics import MongoTopics
from oplogd.store.mongo.link.errors import REFUSALS, refused_url, shown, translating, unavailable
from oplogd.store.mongo.link.layout import IDENTITY, LOG, META, STATES, Document
from oplogd.store.mongo.link.lease import FoldLease
from oplogd.store.mongo.link.link import DEFAULT_DATABASE, Link
from oplogd.store.mongo.log.log import Log
from oplogd.store.mongo.pointers.rows import PointerRows
from oplogd.store.mongo.setup.setup import DEFAULT_CAP_BYTES
from oplogd.store.pointers import OpenPointer

_T = TypeVar("_T")

_OPTIONS = {"serverSelectionTimeoutMS": 10_000, "connectTimeoutMS": 4_000, "appname": "oplog-sync"}


class MongoBackend:
    """Reads a store in MongoDB. Raises OptionError for a malformed URL. Connects later."""

    needs_local_master = False
    writers_wait = False

    def __init__(self, url: str) -> None:
        self._url = url
        self._where = shown(url)
        with self._connection():
            pass

    @property
    def name(self) -> str:
        return f"MongoDB at {self._where}"

    def exists(self) -> bool:
        """Return whether there is an oplog. Raises StoreError if an agent must convert it first."""
        with self._database() as database:
            if _at_primary(database[META]).find_one({"_id": LOG}, {"_id": 1}) is not None:
                return True
            has_log = LOG in database.list_collection_names()
            if has_log or _at_primary(database[STATES]).find_one({}, {"_id": 1}) is not None:
                raise StoreError(
                    f"{self.name}: its database has collections of the first server, or of an "
                    "agent that is starting; start an agent on it, which takes them over, then run "
                    "this again"
                )
        return False

    def check(self) -> None:
        if not self.exists():
            fault = "there is no oplog in its database; start an agent on it or fill it first"
            raise StoreError(f"{self.name}: {fault}")

    def state_count(self) -> int:
        with self._database() as database:
            return database[STATES].estimated_document_count()

    def state_ranges(self, rows: int) -> list[Range]:
        parts = math.ceil(self.state_count() / rows)
        with self._database() as database:
            states = database[STATES]
            if parts <= 1:
                keys = []
            elif asyncio.run(self._has_sample()):
                keys = sampled_bounds(states, parts)
            else:
                keys = list(counted_bounds(states, rows))
        return list(itertools.pairwise([None, *keys, None]))

    def states(self, part: Range, wanted: Wanted) -> Iterator[list[StoreRow]]:
        """Yield the states of a range of keys; None is no bound."""
        upto = wanted.offset[1] if wanted.fresh is None else wanted.fresh
        return self._rows(STATE_TABLE, part, wanted, upto)

    def find(self, keys: Sequence[str]) -> list[StoreRow]:
        fields = dict.fromkeys(STATE_TABLE.fields, 1)
        with self._database() as database:
            found = database[STATES].find({"_id": {"$in": [*keys]}}, fields)
            return [STATE_TABLE.row(document, True) for document in found]

    def operations(self, part: Range, wanted: Wanted) -> Iterator[list[StoreRow]]:
        return self._rows(OPERATION_TABLE, part, wanted, part[1])

    def locate(self, offset: int) -> LogBounds:
        return asyncio.run(self._ask(lambda log: log.locate(offset)))

    @contextlib.asynccontextmanager
    async def topic(self, name: TopicName) -> AsyncIterator[OpenTopic]:
        async with self._greeted() as link:
            topics = MongoTopics(link, FoldLease(link.meta, 0), None, contextlib.nullcontext)
            found = await topics.find(name)
            if found is None:
                raise no_topic(name)
            log, rows = found.log, PointerRows(link)

            async def open_pointers() -> list[OpenPointer]:
                return [each.open for each in await rows.select(MOST_POINTERS, None, log)]

            made = await link.meta.find_one({"_id": IDENTITY}, {"identity": 1})
            store = sound_identity(made and made.get("identity"))
            yield OpenTopic(topics.log(found), open_pointers, store)

    def seek(self, ms: int) -> Mark:
        return asyncio.run(self._ask(lambda log: log.seek(ms)))

    def settle(self) -> None:
        with self._database() as database:
            row = _at_primary(database[META]).find_one({"_id": LOG}, {"n": 1})
            unfolded = {"n": {"$gt": row["n"] if row else 0}}
            if _at_primary(database[LOG]).find_one(unfolded, {"_id": 1}) is None:
                return
        asyncio.run(self._settle())

    async def corrector(self, new: NewLog = NEW_LOG) -> MongoStore:
        exists = await asyncio.to_thread(self.exists)
        kind, cap_bytes = None if exists else new.collection, new.cap_bytes or DEFAULT_CAP_BYTES
        store = MongoStore(self._url, collection=kind, new_bytes=cap_bytes)
        await store.open()
        return store

    async def _has_sample(self) -> bool:
        async with self._greeted() as link:
            return link.quirks.has_sample

    async def _ask(self, call: Callable[[Log], Awaitable[_T]]) -> _T:
        async with self._greeted() as link:
            return await call(Log(link))

    @contextlib.asynccontextmanager
    async def _greeted(self) -> AsyncIterator[Link]:
        """Connect for one request. Raises StoreUnavailableError for errors of PyMongo."""
        link = Link(self._url, brief=True)
        try:
            with translating(link.hosts):
                await link.greet()
                yield link
        finally:
            await link.close()

    async def _settle(self) -> None:
        store = await self.corrector()
        try:
            await store.settle()
        finally:
            await store.close()

    def _rows(
        self, table: MongoTable, part: Range, wanted: Wanted, upto: int | None
    ) -> Iterator[list[StoreRow]]:
        """Yield rows in chunks. If a cursor is lost, a new one continues after the last row."""
        after, last = part
        order, filters = table.order, table.filters(wanted)
        projection = dict.fromkeys(table.fields if wanted.data else table.fields_without_data, 1)
        moved = True
        with (
            self._database() as database,
            self._up_to_date(database, table, upto) as (collection, session),
        ):
            while True:
                rows: list[StoreRow] = []
                size = 0
                chosen: Document = {"$and": [past(order, after, last), *filters]}
                found = collection.find(chosen, projection, session=session)
                try:
                    with found.sort(order, 1).hint([(order, 1)]).batch_size(CHUNK_ROWS) as cursor:
                        for document in cursor:
                            rows.append(row := table.row(document, wanted.data))
                            size += len(row.data)
                            after, moved = document[order], True
                            if len(rows) == CHUNK_ROWS or size >= CHUNK_BYTES:
                                yield rows
                                rows, size = [], 0
                    is_whole = True
                except (ConnectionFailure, CursorNotFound):
                    if not moved:
                        raise
                    moved = is_whole = False
                if rows:
                    yield rows
                if is_whole:
                    return

    @contextlib.contextmanager
    def _up_to_date(
        self, database: Database[Document], table: MongoTable, upto: int | None
    ) -> Iterator[tuple[Collection[Document], ClientSession | None]]:
        """Yield a collection with the operations up to an offset, and the session to read it.

        ``upto`` None: any member of the read preference will do.
        """
        collection = database[table.name]
        if upto is None or database.read_preference == ReadPreference.PRIMARY:
            yield collection, None
            return
        with database.client.start_session(causal_consistency=True) as session:
            try:
                if table is OPERATION_TABLE:
                    entry = collection.find_one({"n": upto}, {"_id": 1}, session=session)
                    is_there = entry is not None
                else:
                    row = database[META].find_one({"_id": LOG}, {"n": 1}, session=session)
                    is_there = row is not None and row["n"] >= upto
            except ConfigurationError:
                is_there = False  # no sessions; a secondary can be read while there is no primary
            if is_there:
                yield collection, session  # causal consistency: every member shows the same
            else:
                yield _at_primary(collection), None

    @contextlib.contextmanager
    def _database(self) -> Iterator[Database[Document]]:
        """Raise StoreUnavailableError for errors of PyMongo in the block."""
        with self._connection() as client:
            try:
                yield client.get_default_database(DEFAULT_DATABASE).with_options(
                    codec_options=CodecOptions(
                        datetime_conversion=DatetimeConversion.DATETIME_MS,
                        unicode_decode_error_handler="replace",
                    ),
                    read_concern=ReadConcern("majority"),
                )
            except PyMongoError as error:
                raise unavailable(error, self._where) from None

    @contextlib.contextmanager
    def _connection(self) -> Iterator[MongoClient[Document]]:
        given = self._url.partition("?")[2].lower()
        options: dict[str, Any] = {
            name: value for name, value in _OPTIONS.items() if f"{name.lower()}=" not in given
        }
        try:
            with warnings.catch_warnings():
                # PyMongo only warns of a wrong option and ignores it.
                warnings.simplefilter("error", UserWarning)
                client: MongoClient[Document] = MongoClient(self._url, connect=False, **options)
        except REFUSALS as error:
            raise OptionError(str(refused_url(error, self._url))) from None
        with client:
            yield client


def _at_primary(collection: Collection[Document]) -> Collection[Document]:
    return collection.with_options(read_preference=ReadPreference.PRIMARY)
