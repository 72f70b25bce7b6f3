"""The rows of a leader during one term, from their mark to their purge. No I/O.

Each rule prevents a reversal within a key:

- At most one row of a key is between send and purge. The purge frees the key, not the
  acknowledgement: a failed purge would bring back a row after its successor was sent.
- A mark with a row already held confuses the flow: a late mark of an earlier leader has taken it,
  or the table was emptied and its ids begin anew. A new term is needed.
- Marks pass over a key with many rows, so others get in. All of its other rows wait.
- Rows of a blocked key are not held. They stay stamped until the key is free and they are reset.
  No mark may be under way during the reset.
"""

from collections import deque
from collections.abc import Sequence
from datetime import datetime
from itertools import accumulate
from math import inf
from typing import NamedTuple
from zlib import crc32

from oplog_relay.leader.blocked import BlockedKeys, Refusal
from oplog_relay.model.row import Row
from oplog_relay.model.settings import Limits

# A key may have this part of the remaining room.
_SHARES = 8
# Seconds before rows locked in the database are purged again.
_LOCKED_S = 0.5
# Characters of values in a request: as JSON they fit into an agent's --max-body-size, 16MB.
_MAX_REQUEST = 2 * 1024 * 1024
# Characters in all values. Above _MAX_HELD no rows are marked. _MAX_MARK is the aim of one mark, by
# the size of the last rows.
_MAX_HELD = 64 * 1024 * 1024
_MAX_MARK = 8 * 1024 * 1024


class Request(NamedTuple):
    """Rows of different keys and one topic, to be sent together."""

    shard: int
    topic: str
    rows: Sequence[Row]


class _Shard:
    def __init__(self) -> None:
        # By topic. The first topic is served next, and goes to the end then.
        self.ready: dict[str, list[Row]] = {}
        # Rows sent alone: one of them is or may be refused.
        self.alone: deque[Row] = deque()
        self.alone_next = True


class Flow:
    """The rows of one term. ``now``: seconds of a monotonic clock."""

    def __init__(self, limits: Limits, blocked: BlockedKeys) -> None:
        self._limits = limits
        self._largest_mark = min(limits.mark, limits.in_flight)
        self._blocked = blocked
        self._shards = [_Shard() for _ in range(limits.shards)]
        # Characters of each row's value.
        self._held: dict[int, int] = {}
        self._size = 0
        self._mean_size = 1.0
        # Rows by key, in order. The first one is ready, being sent, or acknowledged.
        self._keys: dict[str, deque[Row]] = {}
        # When the first row of each key became the first; in this order.
        self._since: dict[str, float] = {}
        self._acknowledged: list[Row] = []
        self._purging: list[Row] = []
        # Acknowledged rows locked in the database, and when they are purged again.
        self._locked: list[Row] = []
        self._retry_at = 0.0
        self._asked = 0
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
        has_rows = len(self._held) <= self._limits.in_flight - self._largest_mark
        return has_rows and self._size <= _MAX_HELD

    def oldest_wait(self, now: float) -> float:
        """Return the longest wait of a first row of a key, in seconds.

        Later rows do not count: a long queue of one key is no failure.
        """
        since = next(iter(self._since.values()), now)
        return now - max(since, self._waiting_since)

    def restart_waits(self, now: float) -> None:
        """Count waits from now on only: sending was stopped on purpose."""
        self._waiting_since = now

    def woken(self) -> set[int]:
        """Return the shards with something new to send since the last call."""
        woken, self._woken = self._woken, set()
        return woken

    # Mark

    def begin_mark(self) -> int:
        """Return the number of rows a mark may bring. ``end_mark`` gets them. 0: no mark now."""
        fitting = max(int(_MAX_MARK / self._mean_size), 1)
        self._asked = self._blocked.mark_limit(min(self._largest_mark, fitting))
        return self._asked

    def full_keys(self) -> list[str]:
        """Return the keys with too many rows for the room left: marks pass them over."""
        held, keys = len(self._held), self._keys
        most = max((self._limits.in_flight - held) / _SHARES, 1)
        if held - len(keys) + 1 < most:  # not even if one key had all rows but one of each other
            return []
        return [key for key, rows in keys.items() if len(rows) >= most]

    def end_mark(self, rows: Sequence[Row], now: float) -> Row | None:
        """Queue the rows of a mark. Return None, or the confusing row."""
        held, keys, blocked = self._held, self._keys, self._blocked
        for row in rows:
            if row.id in held or (row.key in blocked and blocked.is_unexpected(row)):
                return row
        for row in rows:
            key = row.key
            if key in blocked and not blocked.admit(row):
                blocked.hide(key)
                continue
            held[row.id] = len(row.value or "")
            self._size += held[row.id]
            queue = keys.get(key)
            if queue is not None:
                queue.append(row)
                continue
            keys[key] = deque((row,))
            self._make_ready(row, now)
        blocked.missed(rows[-1].id if len(rows) >= self._asked else inf)
        if rows:
            self._mean_size = max(sum(len(row.value or "") for row in rows) / len(rows), 1.0)
        return None

    def _make_ready(self, row: Row, now: float) -> None:
        key = row.key
        number = crc32(key.encode(errors="surrogatepass")) % len(self._shards)
        shard = self._shards[number]
        self._since[key] = now
        self._woken.add(number)
        if row.fault or key in self._blocked:
            shard.alone.append(row)
            return
        shard.ready.setdefault(row.topic, []).append(row)

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
        sizes = accumulate(self._held[row.id] for row in rows[: self._limits.batch])
        count = max(sum(size <= _MAX_REQUEST for size in sizes), 1)
        if len(rows) > count:
            this.ready[topic] = rows[count:]
            rows = rows[:count]
        return Request(shard, topic, rows)

    def accept(self, request: Request) -> None:
        """Note the durable rows of a request, for the next purge."""
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
        """Take back a refused request. Several rows are sent again alone.

        A single row blocks its key: return its refusal.
        """
        self._woken.add(request.shard)
        if len(request.rows) > 1:
            self._shards[request.shard].alone.extend(request.rows)
            return None
        row = request.rows[0]
        refusal = self._blocked.refuse(row, reason, now, time)
        rows = self._keys.pop(row.key)
        del self._since[row.key]
        for each in rows:
            self._size -= self._held.pop(each.id)
        if len(rows) > 1:
            self._blocked.hide(row.key)
        return refusal

    # Purge

    def to_purge(self, now: float) -> list[Row]:
        """Return the acknowledged rows to purge now. ``purged`` follows unless there is none."""
        rows, self._acknowledged = self._acknowledged, []
        if self._locked and now >= self._retry_at:
            rows += self._locked
            self._locked = []
        self._purging = rows
        return rows

    def unpurged(self) -> list[Row]:
        """Return all acknowledged rows, at the end of the term."""
        return [*self._purging, *self._locked, *self._acknowledged]

    def purge_pause(self, now: float) -> float | None:
        """Return the seconds until locked rows are purged again, None without any."""
        return self._retry_at - now if self._locked else None

    def lock(self, rows: Sequence[Row], now: float) -> None:
        """Keep rows locked in the database for a later purge."""
        self._locked += rows
        self._retry_at = now + _LOCKED_S

    def purged(self, rows: Sequence[Row], now: float) -> None:
        """Free the keys of purged rows: the next row of each key becomes ready."""
        self._purging = []
        held, keys, since, blocked = self._held, self._keys, self._since, self._blocked
        for row in rows:
            key = row.key
            self._size -= held.pop(row.id)
            queue = keys[key]
            queue.popleft()
            del since[key]
            if key in blocked:
                blocked.gone(row)
            if queue:
                self._make_ready(queue[0], now)
            else:
                del keys[key]
