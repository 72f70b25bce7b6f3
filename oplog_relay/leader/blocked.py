"""The blocked keys of a leader: when each is tried again, and how it becomes free. No I/O."""

from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import NamedTuple

from oplog_relay.model.row import Row
from oplog_relay.model.state import Blocked

# Blocked keys at which no more rows are marked, except to try these again: bounds the memory, and
# the requests of one row each, when everything is refused.
MAX_BLOCKED = 10_000
# Seconds between two log lines about one blocked key.
_LOG_EVERY = 300.0


class Refusal(NamedTuple):
    """A refused row. ``worth_logging``: its first refusal, or the first for 5 minutes."""

    blocked: Blocked
    worth_logging: bool


@dataclass
class _Block:
    blocked: Blocked
    row: Row
    # Infinite while the row is tried again.
    retry_at: float
    # Rows of the key are stamped with the leader id and not held.
    hides_rows: bool = False


class BlockedKeys:
    """The blocked keys of a relay. ``backoff``: first and longest, in seconds.

    A key waits for its back-off. Then its row is reset and awaited, marked and sent again. Once the
    row is gone, the rows behind it are reset, and the key is free. A new term marks every row anew,
    so it forgets the keys. Only the attempts of each row remain, and its back-off continues.
    ``changes`` counts keys becoming blocked or free.
    """

    def __init__(self, backoff: tuple[float, float]) -> None:
        self._first, self._longest = backoff
        self._blocks: dict[str, _Block] = {}
        # Keys by the rows the next mark is to bring back.
        self._awaited: dict[int, str] = {}
        # Keys whose row is gone.
        self._freeing: set[str] = set()
        self._next_retry = inf
        # Of the term before, by row.
        self._before: dict[int, Blocked] = {}
        self._logged: dict[int, float] = {}
        self.changes = 0

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, key: str) -> bool:
        return key in self._blocks

    def rows(self) -> tuple[Blocked, ...]:
        """Return the blocked rows, oldest refusal first."""
        rows = (each.blocked for each in self._blocks.values())
        return tuple(sorted(rows, key=lambda row: (row.since, row.id)))

    def mark_limit(self, limit: int) -> int:
        """Return how many rows a mark may bring: ``limit``, but only awaited rows of many keys."""
        return limit if len(self._blocks) < MAX_BLOCKED else min(limit, len(self._awaited))

    def new_term(self) -> None:
        self._before = {each.blocked.id: each.blocked for each in self._blocks.values()}
        self._logged = {id: at for id, at in self._logged.items() if id in self._before}
        self.changes += len(self._blocks)
        self._blocks.clear()
        self._awaited.clear()
        self._freeing.clear()
        self._next_retry = inf

    def refuse(self, row: Row, reason: str, now: float, time: datetime) -> Refusal:
        """Block the key of a refused row, or count the refusal of its first row again."""
        block = self._blocks.get(row.key)
        before = block.blocked if block else self._before.pop(row.id, None)
        attempts = before.attempts + 1 if before else 1
        since = before.since if before else time
        blocked = Blocked(row.id, row.topic, row.key, reason, since, attempts)
        # 2 ** 30 is enough to reach every longest back-off.
        retry_at = now + min(self._first * 2.0 ** min(attempts - 1, 30), self._longest)
        self._next_retry = min(self._next_retry, retry_at)
        if block is None:
            self._blocks[row.key] = _Block(blocked, row, retry_at)
            self.changes += 1
        else:
            block.blocked, block.row, block.retry_at = blocked, row, retry_at
        worth_logging = now - self._logged.get(row.id, -inf) >= _LOG_EVERY
        if worth_logging:
            self._logged[row.id] = now
        return Refusal(blocked, worth_logging)

    def hide(self, key: str) -> None:
        """Note stamped rows of a blocked key outside the flow."""
        self._blocks[key].hides_rows = True

    def due(self, now: float) -> list[Row]:
        """Return the rows to try again. The caller resets them before it marks."""
        if now < self._next_retry:
            return []
        due = []
        self._next_retry = inf
        for key, block in self._blocks.items():
            if block.retry_at <= now:
                block.retry_at = inf
                self._awaited[block.blocked.id] = key
                due.append(block.row)
            else:
                self._next_retry = min(self._next_retry, block.retry_at)
        return due

    def is_unexpected(self, row: Row) -> bool:
        """Return whether a marked row is at or before the blocking row of its key, and not awaited.

        Another relay has marked the row, or its id is that of a deleted row.
        """
        block = self._blocks.get(row.key)
        if block is None or row.id > block.blocked.id:
            return False
        return self._awaited.get(row.id) != row.key

    def admit(self, row: Row) -> bool:
        """Return whether a marked row of a blocked key was awaited. Then send it again."""
        if self._awaited.get(row.id) != row.key:
            return False
        del self._awaited[row.id]
        return True

    def missed(self, through: float) -> None:
        """Free the keys of awaited, deleted rows: a mark up to this id has not brought them.

        The rows must have been reset before the mark began.
        """
        for id in [each for each in self._awaited if each <= through]:
            self._free(self._awaited.pop(id))

    def gone(self, row: Row) -> None:
        """Free the key of a purged row, if the row has blocked it."""
        block = self._blocks.get(row.key)
        if block is not None and block.blocked.id == row.id:
            self._free(row.key)

    def to_reset(self) -> list[str]:
        """Return the keys whose rows are to be reset. ``unblock`` each of them then."""
        return [*self._freeing]

    def unblock(self, key: str) -> None:
        """Forget a key. No mark may be under way: it might bring rows of before the reset."""
        self._logged.pop(self._blocks.pop(key).blocked.id, None)
        self._freeing.discard(key)
        self.changes += 1

    def _free(self, key: str) -> None:
        if self._blocks[key].hides_rows:
            self._freeing.add(key)
        else:
            self.unblock(key)
