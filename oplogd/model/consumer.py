"""Named consumers: their settings, and the rules for positions and terms. No I/O.

A named consumer reads one log. The store keeps a position for each of its shards: everything up to
there is acknowledged. A reader of a shard has a term. The term rises with each new reader, so the
acknowledgements of an old one change nothing.
"""

from typing import NamedTuple

from oplogd.errors import StaleTermError
from oplogd.model.names import OPLOG, TopicName
from oplogd.model.shard import Shard
from oplogd.model.transaction import Isolation

# Most shards of all named consumers of a store together.
MAX_ROWS = 100_000

# Longer ids name an entry of the log. Shorter ones are a time in ms, as a replication has them.
_MAX_TIME = 13


class ConsumerSettings(NamedTuple):
    """What a consumer reads. Its settings never change.

    ``types`` and ``parents``: of the oplog only. ``isolation``: of topics only. ``shards``: the
    number of parts of the log with a position of their own.
    """

    log: TopicName
    types: frozenset[str] = frozenset()
    parents: frozenset[str] = frozenset()
    isolation: Isolation = Isolation.READ_COMMITTED
    shards: int = 1

    @property
    def is_of_oplog(self) -> bool:
        return self.log == OPLOG

    @property
    def is_committed(self) -> bool:
        return self.isolation is Isolation.READ_COMMITTED

    def shard(self, number: int) -> Shard | None:
        """Return one of the shards as readers of streams name it. None: there is only one."""
        return None if self.shards == 1 else Shard(number, self.shards)


class NamedConsumer(NamedTuple):
    """``created_ms``: ms since 1970."""

    name: str
    settings: ConsumerSettings
    created_ms: int


class ShardKey(NamedTuple):
    """One shard of a named consumer."""

    name: str
    shard: int


class ShardPosition(NamedTuple):
    """The position of one shard.

    ``position``: an id, or a time in ms since 1970: everything up to there is acknowledged.
    ``place``: the last acknowledged id within a replication; only readers of this term have what
    came before. None: outside of one. ``term``: 0 before the first reader. ``reader``: who took the
    term. ``acknowledged_ms``: time of the last acknowledgement in ms since 1970, 0 before it.
    """

    position: str
    place: str | None = None
    term: int = 0
    reader: str = ""
    acknowledged_ms: int = 0

    @property
    def start(self) -> str:
        """The position at which the reader with the term continues."""
        return self.position if self.place is None else self.place


class Acknowledgement(NamedTuple):
    """A reader has handled everything up to an id, inclusive.

    ``instead_of``: replace this position, which belongs to another history of the log, even if the
    id is smaller. None: an older id changes nothing.
    """

    key: ShardKey
    term: int
    id: str
    instead_of: str | None = None


def acknowledged(before: ShardPosition, given: Acknowledgement, now_ms: int) -> ShardPosition:
    """Return a shard after an acknowledgement: the same one if the id is older.

    Raises StaleTermError for another term than that of the shard.

    An id of the log replaces the position and ends the place. A time within a replication becomes
    the place, also a smaller one: then the replication has begun again.
    """
    require_term(before, given.key, given.term)
    if is_time(given.id):
        return before._replace(place=given.id, acknowledged_ms=now_ms)
    replaces = before.position == given.instead_of
    if not is_time(before.position) and not replaces and given.id <= before.position:
        # The same id again: a time that came too late may have set the place.
        is_same = given.id == before.position
        if not is_same or before.place is None:
            return before
        return before._replace(place=None, acknowledged_ms=now_ms)
    return before._replace(position=given.id, place=None, acknowledged_ms=now_ms)


def taken(before: ShardPosition, key: ShardKey, reader: str, term: int | None) -> ShardPosition:
    """Return a shard after a reader has taken it.

    ``term``: the reader has it already. It keeps it, and its place in a replication. None: it gets
    the next one. Raises StaleTermError for another term than that of the shard.
    """
    if term is None:
        return before._replace(term=before.term + 1, place=None, reader=reader)
    require_term(before, key, term)
    return before._replace(reader=reader)


def sought(before: ShardPosition, position: str) -> ShardPosition:
    """Return a shard moved to a position. The term rises: present readers must begin anew."""
    return before._replace(position=position, place=None, term=before.term + 1, reader="")


def require_term(shard: ShardPosition, key: ShardKey, term: int) -> None:
    """Raise StaleTermError unless this is the term of the shard."""
    if shard.term != term:
        raise StaleTermError(
            f"shard {key.shard} of the consumer {key.name} has term {shard.term}, not {term}:"
            " another reader has taken it, or it was moved"
        )


def is_time(id_: str) -> bool:
    """Return whether an id is a time in ms, as within a replication, and names no entry."""
    return len(id_) <= _MAX_TIME
