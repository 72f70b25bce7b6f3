"""The interface between the agent and the topics of a store."""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple, Protocol

from oplogd.clock.ages import Present
from oplogd.model.event_id import Mark
from oplogd.model.isolation import EntryKind as EntryKind
from oplogd.model.lease import Fence
from oplogd.model.message import Message
from oplogd.model.message_id import MessageId, record_id, stored_id
from oplogd.model.names import TopicName
from oplogd.model.pointer import DEFAULT_RULES, Decision, PointerRules
from oplogd.store.topic_bounds import TopicBounds

# Time to live in seconds of topics without one of their own, in a new store: seven days.
DEFAULT_TTL = 7 * 86_400

# Offsets in a topic stay below MAX_OFFSET.
MAX_OFFSET = (1 << 40) - 1

# Bytes that an entry or a stored message counts besides its data.
ENTRY_BYTES = 100
# The least bound in bytes of a topic, and of all topics together.
MIN_MAX_BYTES = 1 << 20
# For so long after a decision, bounds in bytes remove no entry of its transaction or pointer.
DECIDED_MS = 60_000
# Entries of transactions, PUBLISH entries with their messages, and decisions about pointers stay so
# long behind the front. A record may be up to 15 minutes (the longest time-out) before its commit.
RECORDS_STAY_MS = 20 * 60_000


class TopicEntry(NamedTuple):
    """An entry of a topic: see ``Entry``.

    ``sequence``: see ``Mark``. ``expires_ms``: end of the message's own time to live, 0 without
    one. No reader sees the message later. ``pointer``: of a DIRECT or PUBLISH entry; else None.
    ``written_ms``: the topic's time to live counts from then if the clock has stepped; else 0.
    """

    offset: int
    ms: int
    event: str
    data: str
    sequence: int
    expires_ms: int
    pointer: int | None = None
    written_ms: int = 0


class TopicRecord(NamedTuple):
    """A record of a committed transaction in a topic (see ``Record``), or a stored message.

    ``number``: the lsn, or the write stamp. ``data``: as ``Message.data``; empty past the message's
    own time to live, which counts from the COMMIT or PUBLISH entry. ``expires_ms``: see
    ``TopicEntry``.
    """

    number: int
    data: str
    expires_ms: int


def dated_entry(entry: TopicEntry, written_ms: int, present: Present) -> TopicEntry:
    """Return an entry with its date, void past its own time to live.

    ``written_ms``: time of writing as stored, or 0. ``entry.expires_ms`` counts from the stamp.
    """
    counts = present.date(entry.ms, written_ms)
    if counts == entry.ms:
        return entry
    expires = entry.expires_ms and entry.expires_ms - entry.ms + counts
    dated = entry._replace(expires_ms=expires, written_ms=counts)
    return voided(dated) if 0 < expires < present.ms else dated


def voided(entry: TopicEntry) -> TopicEntry:
    return entry._replace(event=EntryKind.VOID, data="", pointer=None)


def id_of_record(entry: TopicEntry, number: int, last: int) -> MessageId:
    """Return the id of a record of a COMMIT or PUBLISH entry. ``last``: see ``Marker``."""
    make = stored_id if entry.event == EntryKind.PUBLISH else record_id
    return make(entry.ms, entry.sequence, number, is_last=number == last)


class Topic(NamedTuple):
    """One generation of a topic. No later one has its ``log``: see ``numbers``.

    ``ttl``: own time to live in seconds; None: the store's default. ``pointers``: rules for
    messages under pointers. ``max_bytes``: bound of the size, see ``Topics.shrink``; None: none.
    """

    log: int
    name: TopicName
    ttl: int | None
    pointers: PointerRules = DEFAULT_RULES
    max_bytes: int | None = None


class Namespace(NamedTuple):
    """``topics``: number of its topics."""

    name: str
    topics: int


class MessageBatch(NamedTuple):
    """Messages appended to one topic together, or not at all.

    ``fence``: judged with the append; None: there is no condition. No batch of a term is in the log
    behind a batch of a later term.
    """

    log: int
    messages: Sequence[Message]
    fence: Fence | None = None


class Placed(NamedTuple):
    """The batch is in the log: the marks of its first and its last message."""

    first: Mark
    last: Mark


class Refused(StrEnum):
    """The batch is not in the log. The value says why."""

    # The topic was deleted: this generation takes no more messages.
    DELETED = "deleted"
    # The fence does not hold: the lease has another term, or no holder.
    STALE = "stale"


class Full(NamedTuple):
    """The batch is not in the log: a bound in bytes is reached, and the oldest entries must stay.

    ``reason``: names the bound and the entries in it.
    """

    reason: str


Outcome = Placed | Refused | Full


class News(NamedTuple):
    """``logs``: logs with entries past the given offsets, and deleted ones.

    ``version``: changes whenever any agent creates, changes or deletes a topic. ``floors``: up to
    these offsets entries have left by a bound in bytes since the last call.
    """

    logs: Collection[int]
    version: int
    floors: Mapping[int, int] = MappingProxyType({})


class TopicStats(NamedTuple):
    """Figures for /status. ``numbers``: of logs in use, also those of topics deleted lately.

    ``bytes``: of all topics, see ``Topics.shrink``. ``max_bytes``: bound of all topics together,
    None without one. ``left``: entries removed because of bounds in bytes.
    """

    topics: int
    numbers: int = 0
    bytes: int = 0
    max_bytes: int | None = None
    left: int = 0


class TopicLog(Protocol):
    """Reads one generation of a topic. A handle has no task and no cursor, so it costs nothing.

    Methods raise TopicNotFoundError after the topic was deleted, and StoreUnavailableError.
    """

    async def read(self, after: int, limit: int, at_ms: int | None = None) -> list[TopicEntry]:
        """Return up to ``limit`` entries after an offset, in order, at most about 1 MB of them.

        At least one if there is any, however large. The first one is past the front: it is not
        ``after + 1`` if this entry is gone. Messages past their own time to live are VOID.
        ``at_ms``: as in ``Store.read``. Raises LogReplacedError.
        """

    async def locate(self, ms: int = 0, sequence: int = 0) -> TopicBounds:
        """Return the bounds of the topic, and the last entry at or before a time and sequence."""

    async def expand(self, entry: TopicEntry, after: int, limit: int) -> list[TopicRecord]:
        """Return up to ``limit`` records of a COMMIT or PUBLISH entry past a number, by number.

        At most about 1 MB of them, but at least one if there is any. They stay for 5 minutes after
        the front has passed the entry. After a rollback of a PUBLISH entry there are none.
        """

    async def decisions(self, pointers: Collection[int]) -> dict[int, Decision]:
        """Return the decisions about these pointers in this log. Open ones are missing.

        A decision is final: it also counts for entries read before this call.
        """


class Topics(Protocol):
    """The topics of a store, except the built-in ones.

    Every method may raise StoreUnavailableError. Methods may be called concurrently, except
    ``append`` and ``news``, which have one caller each.
    """

    async def create(
        self,
        name: TopicName,
        ttl: int | None,
        pointers: PointerRules = DEFAULT_RULES,
        *,
        max_bytes: int | None = None,
    ) -> Topic:
        """Create a topic. Raises TopicExistsError and NoLogNumberError."""

    async def change(
        self,
        name: TopicName,
        ttl: int | None,
        pointers: PointerRules = DEFAULT_RULES,
        *,
        max_bytes: int | None = None,
    ) -> Topic:
        """Set the properties; a ``ttl`` of None is the default. Raises TopicNotFoundError.

        Messages expired by the old time to live stay expired. A smaller bound counts from the next
        ``shrink`` on. Open pointers keep their time-outs, and end as before.
        """

    async def delete(self, name: TopicName) -> None:
        """Delete a topic with its messages. Raises TopicNotFoundError."""

    async def find(self, name: TopicName) -> Topic | None:
        """Return a topic, None if there is none of this name."""

    async def in_namespace(
        self, namespace: str, after: str = "", limit: int | None = None
    ) -> list[Topic]:
        """Return topics of a namespace past a name, sorted by name. ``limit`` None: all."""

    async def namespaces(self, after: str, limit: int) -> list[Namespace]:
        """Return namespaces with topics, past a name, sorted by name."""

    async def current(self, logs: Collection[int]) -> dict[int, Topic]:
        """Return the topics of these logs by log, without deleted ones."""

    async def default_ttl(self) -> int:
        """Return the time to live in seconds of topics without one of their own."""

    def log(self, topic: Topic) -> TopicLog: ...

    async def append(self, batches: Sequence[MessageBatch]) -> list[Outcome]:
        """Append batches in this order; return an outcome for each.

        Placed batches are durable when the call returns. A refused batch does not affect the
        others. If the call raises, the batches may or may not be in their logs; nothing tries them
        again.
        """

    async def news(self, heads: Mapping[int, int], seconds: float) -> News:
        """Wait up to ``seconds`` until one of these logs has an entry past its offset.

        Returns also when a topic was created, changed or deleted. Only one follower calls it.
        """

    async def stats(self) -> TopicStats: ...

    async def sweep(self) -> int:
        """Remove entries without readers. Return their number.

        Works in small steps: it delays an append by some milliseconds at most. Of several agents on
        one store only one does it.
        """

    async def shrink(self) -> int:
        """Remove the oldest entries while topics store more than their bounds. Return their number.

        Each entry and each stored message counts its data and ENTRY_BYTES. The front of a topic
        with ``max_bytes`` leaves first; if all topics together have a bound, the oldest fronts do.
        Entries of an undecided or just decided transaction or pointer stay. The newest entry of a
        topic leaves only if it and its records alone exceed its bound, or the newest entries of all
        topics exceed theirs. Works in small steps, as ``sweep`` does.
        """
