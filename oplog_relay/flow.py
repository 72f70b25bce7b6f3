"""The rows that a leader holds during one term, from their mark to their purge. No I/O.

Rules, each of which prevents a reversal within a key:

- At most one row of a key is between send and purge. A key is free after the purge, not after the
  acknowledgement: otherwise a failed purge would bring back a row whose successor was sent.
- A marked row that is held already is not queued again. A late mark of an earlier leader takes
  rows from this one, and the next mark returns them a second time.
- A row that was purged while a mark was under way is not queued either: the mark may have read it
  before.
- Rows of a blocked key are not held. They stay stamped, until the key is free and they are reset.
  No mark may be under way during that reset.
"""

from collections import deque
from collections.abc import Sequence
from datetime import datetime
from math import inf
from typing import NamedTuple
from zlib import crc32

from oplog_relay.blocked import BlockedKeys, Refusal
from oplog_relay.row import Row
from oplog_relay.settings import Limits


class Request(NamedTuple):
    """Rows of different keys and one topic, to be sent together."""

    shard: int
    topic: str
    rows: Sequence[Row]


class _Shard:
    def __init__(self) -> None:
        # By topic. The first topic is served next, and goes to the end then.
        self.ready: dict[str, list[Row]] = {}
        # Rows that are sent alone: one of them is or may be refused.
        self.alone: deque[Row] = deque()
        self.alone_next = True


class Flow:
    """The rows of one term. ``now``: seconds of a clock that never goes back."""

    def __init__(self, limits: Limits, blocked: BlockedKeys) -> None:
        self._limits = limits
        self._largest_mark = min(limits.mark, limits.in_flight)
        self._blocked = blocked
        self._shards = [_Shard() for _ in range(limits.shards)]
        self._held: set[int] = set()
        # Rows by key, in order. The first one is ready, being sent, or acknowledged.
        self._keys: dict[str, deque[Row]] = {}
        # When the first row of each key became the first; in this order.
        self._since: dict[str, float] = {}
        self._acknowledged: list[Row] = []
        self._is_marking = False
        self._asked = 0
        self._purged_since_mark: set[int] = set()
        self._woken: set[int] = set()
        self._waiting_since = 0.0

    @property
    def in_flight(self) -> int:
        return len(self._held)

    @property
    def in_flight_keys(self) -> int:
        return len(self._keys)

    def has_room(self) -> bool:
        """Return whether the rows of one more mark may be held."""
        return len(self._held) <= self._limits.in_flight - self._largest_mark

    def oldest_wait(self, now: float) -> float:
        """Return for how many seconds a row has been the first of its key.

        Rows behind it do not count: a long queue of one key is no failure.
        """
        since = next(iter(self._since.values()), now)
        return now - max(since, self._waiting_since)

    def restart_waits(self, now: float) -> None:
        """Count waits from now on only: sending was stopped on purpose."""
        self._waiting_since = now

    def woken(self) -> set[int]:
        """Return the shards that have got something to send since the last call."""
        woken, self._woken = self._woken, set()
        return woken

    # Mark

    def begin_mark(self) -> int:
        """Return the number of rows that a mark may bring. If it is not 0, the mark begins now.

        ``end_mark`` gets its rows.
        """
        self._asked = self._blocked.mark_limit(self._largest_mark)
        self._is_marking = self._asked > 0
        return self._asked

    def end_mark(self, rows: Sequence[Row], now: float) -> int:
        """Queue the rows of a mark. Return the number of rows that are new."""
        self._is_marking = False
        held, keys, blocked, purged = self._held, self._keys, self._blocked, self._purged_since_mark
        before = len(held)
        for row in rows:
            id, key = row.id, row.key
            if id in held or id in purged:
                continue
            if key in blocked and not blocked.admit(row):
                blocked.hide(key)
                continue
            held.add(id)
            queue = keys.get(key)
            if queue is not None:
                queue.append(row)
                continue
            keys[key] = deque((row,))
            self._make_ready(row, now)
        purged.clear()
        blocked.missed(rows[-1].id if len(rows) >= self._asked else inf)
        return len(held) - before

    def _make_ready(self, row: Row, now: float) -> None:
        key = row.key
        number = crc32(key.encode(errors="surrogatepass")) % len(self._shards)
        shard = self._shards[number]
        self._since[key] = now
        self._woken.add(number)
        if row.fault or key in self._blocked:
            shard.alone.append(row)
            return
        ready = shard.ready.get(row.topic)
        if ready is None:
            shard.ready[row.topic] = [row]
        else:
            ready.append(row)

    # Send

    def take(self, shard: int) -> Request | None:
        """Return the next request of a shard, None without one.

        The caller gives each request back: accepted, refused or not sent.
        """
        this = self._shards[shard]
        # In turn, so that a batch of refused rows delays the others by one request each at most.
        this.alone_next = bool(this.alone) and (this.alone_next or not this.ready)
        if this.alone_next:
            this.alone_next = False
            row = this.alone.popleft()
            return Request(shard, row.topic, (row,))
        this.alone_next = True
        if not this.ready:
            return None
        topic = next(iter(this.ready))
        rows = this.ready.pop(topic)
        size = self._limits.batch
        if len(rows) > size:
            this.ready[topic] = rows[size:]
            rows = rows[:size]
        return Request(shard, topic, rows)

    def accept(self, request: Request) -> None:
        """Note that the rows of a request are durable: they are to be purged."""
        self._acknowledged += request.rows

    def give_back(self, request: Request) -> None:
        """Take back a request of which nothing was stored, to be sent again."""
        shard = self._shards[request.shard]
        self._woken.add(request.shard)
        if len(request.rows) == 1:
            shard.alone.appendleft(request.rows[0])
        else:
            shard.ready[request.topic] = [*request.rows, *shard.ready.get(request.topic, ())]

    def refuse(self, request: Request, reason: str, now: float, time: datetime) -> Refusal | None:
        """Take back a refused request: several rows are sent again alone, a single row is blocked.

        Return the refusal of a single row.
        """
        self._woken.add(request.shard)
        if len(request.rows) > 1:
            self._shards[request.shard].alone.extend(request.rows)
            return None
        row = request.rows[0]
        refusal = self._blocked.refuse(row, reason, now, time)
        rows = self._keys.pop(row.key)
        del self._since[row.key]
        self._held.difference_update([each.id for each in rows])
        if len(rows) > 1:
            self._blocked.hide(row.key)
        return refusal

    # Purge

    def to_purge(self) -> list[Row]:
        """Return all acknowledged rows that wait. The caller purges them."""
        rows, self._acknowledged = self._acknowledged, []
        return rows

    def purged(self, rows: Sequence[Row], now: float) -> None:
        """Free the keys of purged rows: the next row of each key becomes ready."""
        held, keys, since, blocked = self._held, self._keys, self._since, self._blocked
        for row in rows:
            key = row.key
            held.discard(row.id)
            queue = keys[key]
            queue.popleft()
            del since[key]
            if key in blocked:
                blocked.gone(row)
            if queue:
                self._make_ready(queue[0], now)
            else:
                del keys[key]
        if self._is_marking:
            self._purged_since_mark.update([row.id for row in rows])
