"""The client of all parts of the store: collections, quirks, clock, causally consistent reads."""

import contextlib
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, NamedTuple, ParamSpec, TypeVar

from bson.codec_options import CodecOptions, DatetimeConversion
from bson.datetime_ms import DatetimeMS
from pymongo import AsyncMongoClient, ReadPreference, WriteConcern
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import OperationFailure
from pymongo.monitoring import CommandListener
from pymongo.read_concern import ReadConcern

from oplogd.clock import SYSTEM, Clock
from oplogd.clock.guard import GuardedClock
from oplogd.clock.rule import Saved
from oplogd.store.mongo.link.damage import Damage, whole
from oplogd.store.mongo.link.errors import (
    COMMAND_NOT_FOUND,
    REFUSALS,
    is_existing,
    refused_url,
    shown,
)
from oplogd.store.mongo.link.layout import CLOCK, LOG, META, STATES, Document
from oplogd.store.mongo.link.quirks import Quirks, quirks_of
from oplogd.store.mongo.link.timing import DEFAULT_TIMING, Timing
from oplogd.store.mongo.link.topic_layout import ENTRIES, TOPICS

DEFAULT_DATABASE = "oplog"
_DEFAULTS = {
    "serverSelectionTimeoutMS": 4_000,
    "connectTimeoutMS": 4_000,
    "socketTimeoutMS": 10_000,
}

# Age at which the clock is read again.
_CLOCK_SECONDS = 10.0
_STEPPED_SECONDS = 1.0

# A later answer does not tell the time well enough.
_PROMPT_SECONDS = 2.0


_P = ParamSpec("_P")
_T = TypeVar("_T")


class _ServerTime(NamedTuple):
    """The server's time in ms, and that of the boot clock then."""

    ms: int
    at: float


class Link:
    """One client of MongoDB.

    It reads at the primary with majority, and its writes wait for a majority, even if the URL says
    otherwise. Until ``greet``, ``quirks`` describe MongoDB itself.
    """

    def __init__(
        self,
        url: str,
        *,
        brief: bool = False,
        event_listeners: Sequence[CommandListener] = (),
        clock: Clock = SYSTEM,
        timing: Timing = DEFAULT_TIMING,
    ) -> None:
        """Contact no server yet. ``brief``: for one question only.

        Raises StoreFlagError for an unusable URL.
        """
        self.hosts = shown(url)
        self.clock = clock
        self.timing = timing
        given = url.partition("?")[2].lower()
        options: dict[str, Any] = {
            name: ms for name, ms in _DEFAULTS.items() if f"{name.lower()}=" not in given
        }
        if brief and "servermonitoringmode=" not in given:
            # No second connection: an early close would leave it half open.
            options["serverMonitoringMode"] = "poll"
        if event_listeners:
            options["event_listeners"] = list(event_listeners)
        try:
            with warnings.catch_warnings():
                # PyMongo ignores a wrong option after no more than a warning.
                warnings.simplefilter("error", UserWarning)
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
        self.topics: AsyncCollection[Document] = self.database[TOPICS]
        self.entries: AsyncCollection[Document] = self.database[ENTRIES]
        self.damage = Damage()
        self.quirks = Quirks()
        self._operation_time: Any = None
        self._cluster_time: Any = None
        # The guarded time of the server. It is unknown until the server's first answer. So an agent
        # with a wrong clock does no harm.
        self.guarded = GuardedClock(clock, self.server_ms)
        self.now_ms = self._asked(self.guarded.now_ms)
        self.before_ms = self._asked(self.guarded.before_ms)
        # The present for removals by age; and for stamps, reads and time-outs.
        self.removal = self._asked(self.guarded.removal)
        self.present = self._asked(self.guarded.present)
        # The time for leases: terms make them safe.
        self.raw_ms = self._asked(self.server_ms)
        self._server_time: _ServerTime | None = None
        self._clock_asked = float("-inf")

    async def greet(self) -> None:
        """Learn the quirks and the clock of the server."""
        command = Quirks().hello_command
        began = self.clock.boot()
        try:
            hello = await self.database.command(command)
        except OperationFailure as error:
            if error.code != COMMAND_NOT_FOUND:
                raise
            command = "isMaster"
            began = self.clock.boot()
            hello = await self.database.command(command)
        await self._learn(hello, began)
        build_info = await self.client.admin.command("buildInfo")
        self.quirks = quirks_of(command, hello, build_info)

    async def close(self) -> None:
        await self.client.close()

    def _asked(self, call: Callable[_P, _T]) -> Callable[_P, Coroutine[Any, Any, _T]]:
        """Return a call that first lets the server tell its time."""

        async def ask(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            await self._ask()
            return call(*args, **kwargs)

        return ask

    def server_ms(self) -> int:
        """Return the server's last read time plus the time since then. Any thread may call it.

        Before the server's first answer: this machine's.
        """
        server_time = self._server_time
        if server_time is None:
            return self.clock.now_ms()
        passed = self.clock.boot() - server_time.at
        return self.clock.server_ms(int(server_time.ms + passed * 1000))

    async def keep_clock(self) -> None:
        await self._ask()
        if (saved := self.guarded.due()) is not None:
            row = {"$set": saved._asdict()}
            await self.meta.update_one({"_id": CLOCK}, row, upsert=True)
            self.guarded.was_saved(saved)

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncClientSession | None]:
        """Provide a session whose reads see everything seen by earlier ones of this link.

        None if the server has no sessions.
        """
        session = self.session()
        if session is None:
            yield None
            return
        async with session:
            if self._operation_time is not None:
                session.advance_cluster_time(self._cluster_time)
                session.advance_operation_time(self._operation_time)
            yield session
            self.saw(session)

    def saw(self, session: AsyncClientSession | None) -> None:
        """Let later sessions of ``reading`` see everything seen by this one."""
        if session is None or session.operation_time is None:
            return
        if self._operation_time is None or session.operation_time > self._operation_time:
            self._operation_time, self._cluster_time = session.operation_time, session.cluster_time

    def session(self) -> AsyncClientSession | None:
        """Return a new session; None if the server has no sessions."""
        if not self.quirks.has_sessions:
            return None
        return self.client.start_session(causal_consistency=True)

    async def options(self, name: str) -> Document | None:
        """Return the options of a collection; None if it does not exist."""
        async for found in await self.database.list_collections(filter={"name": name}):
            if found["name"] == name:  # not every server filters
                options: Document = found.get("options", {})
                return options
        return None

    async def rename(self, name: str, to: str) -> bool:
        """Rename a collection. Return False if ``to`` exists."""
        try:
            await self.database[name].rename(to)
        except OperationFailure as error:
            if is_existing(error):
                return False
            raise
        return True

    async def create(self, name: str, **options: Any) -> bool:
        """Create a collection. Return False if it exists."""
        try:
            await self.database.create_collection(name, check_exists=False, **options)
        except OperationFailure as error:
            if is_existing(error):
                return False
            raise
        return True

    async def step(self, name: str) -> None:
        """See ``Timing.at_step``."""
        if self.timing.at_step is not None:
            await self.timing.at_step(name)

    async def _ask(self) -> None:
        """Let the server tell its time every ten seconds, and every second while it has stepped."""
        began = self.clock.boot()
        seconds = _CLOCK_SECONDS
        if self._server_time is not None and self.guarded.step() is not None:
            seconds = _STEPPED_SECONDS
        if began - self._clock_asked >= seconds:
            await self._learn(await self.database.command(self.quirks.hello_command), began)
            self.guarded.step()
        if self.guarded.is_unsure:
            self.guarded.compare(_saved(await self.meta.find_one({"_id": CLOCK})))

    async def _learn(self, hello: Document, began: float) -> None:
        """Take the time of an answer to a question that ``began`` at a time."""
        now = self.clock.boot()
        self._clock_asked = now
        server_time = _ServerTime(int(DatetimeMS(hello["localTime"])), now)
        if self._server_time is None:
            found = await self.meta.find_one({"_id": CLOCK})
            self._server_time = server_time
            self.guarded.begin(_saved(found))
        elif now - began <= _PROMPT_SECONDS:
            # The time of a late answer is one of some moment while it was awaited.
            self._server_time = server_time


def _saved(row: Document | None) -> Saved | None:
    """Return the time saved in the store; None without a readable one."""
    if row is None:
        return None
    names = Saved._fields[:-1]
    numbers = {name: number for name in names if (number := whole(row.get(name))) is not None}
    return Saved(**numbers, ages=str(row.get("ages", ""))) if len(numbers) == len(names) else None
