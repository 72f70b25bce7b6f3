"""The client and what all parts of the store share: collections, the server's clock, causally consistent reads."""

import contextlib
import time
import warnings
from collections.abc import AsyncIterator
from typing import Any

from bson.codec_options import CodecOptions, DatetimeConversion
from bson.datetime_ms import DatetimeMS
from pymongo import AsyncMongoClient, ReadPreference, WriteConcern
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import ConfigurationError, OperationFailure
from pymongo.read_concern import ReadConcern

from oplogd.store.mongo.damage import Damage
from oplogd.store.mongo.errors import COMMAND_NOT_FOUND, REFUSALS, refused_url, shown
from oplogd.store.mongo.layout import LOG, META, STATES, Document

DEFAULT_DATABASE = "oplog"
_DEFAULTS = {
    "serverSelectionTimeoutMS": 4_000,
    "connectTimeoutMS": 4_000,
    "socketTimeoutMS": 10_000,
}
_CLOCK_SECONDS = 10.0
_FERRET_UPDATES = 20
"""FerretDB holds one of its hundred connections for each update of a command, all of them until that is done."""

_FERRET_INSERTS = 100
"""FerretDB inserts by the hundred, and goes on with the next hundred after an error, also in order."""


class Link:
    """One client. Reads are at the primary with majority, writes wait for a majority, whatever the URL says."""

    def __init__(self, url: str, brief: bool = False) -> None:
        """Contacts nobody yet. ``brief``: for one question. Raises StoreError for a URL that cannot be read."""
        self.where = shown(url)
        given = url.partition("?")[2].lower()
        options: dict[str, Any] = {
            name: ms for name, ms in _DEFAULTS.items() if f"{name.lower()}=" not in given
        }
        if brief and "servermonitoringmode=" not in given:
            options["serverMonitoringMode"] = (
                "poll"  # no second connection, which a close at once leaves half open
            )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "error", UserWarning
                )  # PyMongo drops a wrong option with no more than a warning
                self.client: AsyncMongoClient[Document] = AsyncMongoClient(
                    url, appname=None if "appname=" in given else "oplogd", **options
                )
            name = self.client.get_default_database(DEFAULT_DATABASE).name
        except REFUSALS as error:
            raise refused_url(error, url) from None
        self.database: AsyncDatabase[Document] = self.client.get_database(
            name,
            codec_options=CodecOptions(
                datetime_conversion=DatetimeConversion.DATETIME_MS,
                unicode_decode_error_handler="replace",
            ),
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern("majority"),
            write_concern=WriteConcern("majority"),
        )
        self.log: AsyncCollection[Document] = self.database[LOG]
        self.states: AsyncCollection[Document] = self.database[STATES]
        self.meta: AsyncCollection[Document] = self.database[META]
        self.damage = Damage()
        self.updates_per_command = 1_000
        self.inserts_per_command = 5_000
        self.awaits = True
        """Whether a cursor can wait for data: FerretDB reads the whole collection every 10 ms meanwhile, and the end of the
        waiting now and again interrupts another query, which fails."""
        self._sessions = False
        self._operation_time: Any = None
        self._cluster_time: Any = None
        self._clock_ms = 0.0
        self._clock_read = -_CLOCK_SECONDS

    async def greet(self) -> None:
        """Learn what the server is. Raises PyMongoError."""
        info = await self.client.admin.command("buildInfo")
        is_ferret = "ferretdbVersion" in info
        self.updates_per_command = _FERRET_UPDATES if is_ferret else 1_000
        self.inserts_per_command = _FERRET_INSERTS if is_ferret else 5_000
        self.awaits = not is_ferret
        try:
            async with self.client.start_session() as session:
                await self.meta.find_one({"_id": LOG}, {"_id": 1}, session=session)
            self._sessions = True
        except ConfigurationError:
            self._sessions = False
        self._clock_read = -_CLOCK_SECONDS
        await self.now_ms()

    async def close(self) -> None:
        await self.client.close()

    async def now_ms(self) -> int:
        """The server's clock, so that an agent with a wrong one harms nobody. Asked for every ten seconds."""
        now = time.monotonic()
        if now - self._clock_read >= _CLOCK_SECONDS:
            answer = await self._hello()
            self._clock_ms = int(DatetimeMS(answer["localTime"]))
            self._clock_read = time.monotonic()
        return int(self._clock_ms + (time.monotonic() - self._clock_read) * 1000)

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncClientSession | None]:
        """A session that sees all that earlier ones of this link saw; None where the server has no sessions."""
        session = self.session()
        if session is None:
            yield None
            return
        async with session:
            if self._operation_time is not None:
                session.advance_cluster_time(self._cluster_time)
                session.advance_operation_time(self._operation_time)
            yield session
            times = (self._operation_time, session.operation_time)
            if times[1] is not None and (times[0] is None or times[1] > times[0]):
                self._operation_time, self._cluster_time = (
                    session.operation_time,
                    session.cluster_time,
                )

    def session(self) -> AsyncClientSession | None:
        """None where the server has no sessions."""
        return self.client.start_session(causal_consistency=True) if self._sessions else None

    async def _hello(self) -> Document:
        try:
            return await self.database.command("hello")
        except OperationFailure as error:
            if error.code != COMMAND_NOT_FOUND:
                raise
            return await self.database.command("isMaster")
