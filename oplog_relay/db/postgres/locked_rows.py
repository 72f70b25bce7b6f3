"""Marks and purges in PostgreSQL that pass over rows which other transactions have locked.

They take several statements, so they are used only after a statement has waited for a lock.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import psycopg

from oplog_relay.model.bindings import Purged

Connection = psycopg.AsyncConnection[tuple[Any, ...]]

# Seconds after which rows of locked keys are looked at again.
_LOOK_AGAIN_S = 1.0
# Keys at which they are forgotten and found anew.
_MAX_KEYS = 10_000
# Attempts of a mark to find rows of other keys than those that it has just found locked.
_ROUNDS = 10
_LARGEST_ID = 2**63 - 1

# The conditions of statements, also of those in ``postgres``.
FOREIGN = "({leader_id} IS NULL OR {leader_id} < %(first)s OR {leader_id} > %(last)s)"
# Ids and stamps are judged apart, for the sake of the plan. A leader ends its term when a mark
# returns an id that it holds, so no row can have the id of one and the stamp of another.
MINE = "{id} = ANY (%(ids)s::bigint[]) AND {leader_id} = ANY (%(stamps)s::uuid[])"
# A key that is NULL counts as empty: see ``rows``. Two keys are one if they have the same bytes,
# whatever the collation of the column says.
KEY = "coalesce({key}::text, '') COLLATE \"C\""
NOT_PASSED = f"{KEY} <> ALL (%(passed)s::text[])"
# Rows of a purge that are still there, and whether they have one of its stamps.
LEFT = """
SELECT {id}::bigint, coalesce({leader_id} = ANY (%(stamps)s::uuid[]), false)
FROM {table} WHERE {id} = ANY (%(ids)s::bigint[])
"""

# The table itself may be locked, too: that is waited for, as long as ``statement_timeout`` allows.
_WAIT = "SET LOCAL lock_timeout = 0"
_FREE = f"""
SELECT {{id}}::bigint, coalesce({{key}}::text, '') FROM {{table}}
WHERE {FOREIGN} AND {NOT_PASSED}
ORDER BY {{id}} LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
"""
# Rows that have become visible since then count as locked, too.
_LOCKED = f"""
SELECT {{id}}::bigint, coalesce({{key}}::text, '') FROM {{table}}
WHERE {FOREIGN} AND {NOT_PASSED}
    AND {{id}} <= %(through)s AND {{id}} <> ALL (%(free)s::bigint[])
ORDER BY {{id}}
"""
_FREE_OF_MINE = f"""
SELECT {{id}}::bigint FROM {{table}} WHERE {MINE} ORDER BY {{id}} FOR UPDATE SKIP LOCKED
"""
_DELETE = "DELETE FROM {table} WHERE {id} = ANY (%(free)s::bigint[])"


class LockedRows:
    """Remembers what was locked. ``sql`` puts the names into a statement.

    ``stamp_rows``: statement that stamps the rows ``ids`` and returns them.
    """

    def __init__(
        self, sql: Callable[[str], bytes], stamp_rows: str, clock: Callable[[], float]
    ) -> None:
        self._clock = clock
        self._free, self._locked, self._stamp = sql(_FREE), sql(_LOCKED), sql(stamp_rows)
        self._free_of_mine, self._delete, self._left = sql(_FREE_OF_MINE), sql(_DELETE), sql(LEFT)
        # Keys with a locked row before others, found at a time.
        self._keys: set[str] = set()
        self._found_at = 0.0
        # Whether a mark that waits for locks would probably meet one.
        self.are_likely = False
        # Ids of the rows that the last purge has left.
        self.in_purge: frozenset[int] = frozenset()

    async def mark(
        self, connection: Connection, parameters: Mapping[str, Any], passed: Collection[str]
    ) -> list[tuple[Any, ...]]:
        """Stamp rows, but none behind a locked row of its key. Return them."""
        is_old = self._clock() - self._found_at > _LOOK_AGAIN_S
        if is_old or len(self._keys) > _MAX_KEYS:
            self._keys.clear()
            self._found_at = self._clock()
        async with connection.transaction():
            await connection.execute(_WAIT)
            for _ in range(_ROUNDS):
                chosen = await self._choose(
                    connection, {**parameters, "passed": [*passed, *self._keys]}
                )
                if chosen is not None:
                    break
            if not chosen:
                return []
            cursor = connection.cursor(binary=True)
            await cursor.execute(self._stamp, {**parameters, "ids": chosen}, prepare=True)
            return await cursor.fetchall()

    async def _choose(
        self, connection: Connection, parameters: Mapping[str, Any]
    ) -> list[int] | None:
        """Lock and return rows that may be stamped. None: there may be some of other keys."""
        cursor = await connection.execute(self._free, parameters, prepare=True)
        free = await cursor.fetchall()
        is_whole = len(free) < parameters["limit"]
        cursor = await connection.execute(
            self._locked,
            {
                **parameters,
                "through": _LARGEST_ID if is_whole else free[-1][0],
                "free": [id_ for id_, _ in free],
            },
            prepare=True,
        )
        first_locked: dict[str, int] = {}
        for id_, key in await cursor.fetchall():
            first_locked.setdefault(key, id_)
        chosen, behind = [], set[str]()
        for id_, key in free:
            if id_ < first_locked.get(key, _LARGEST_ID):
                chosen.append(id_)
            else:
                behind.add(key)
        self._keys |= behind
        self.are_likely = bool(first_locked or self._keys) or not is_whole
        return None if behind and not chosen else chosen

    async def purge(self, connection: Connection, parameters: Mapping[str, Any]) -> Purged:
        """Delete the rows that are not locked."""
        async with connection.transaction():
            await connection.execute(_WAIT)
            cursor = await connection.execute(self._free_of_mine, parameters, prepare=True)
            free = {id_ for (id_,) in await cursor.fetchall()}
            await connection.execute(self._delete, {"free": [*free]}, prepare=True)
            cursor = await connection.execute(self._left, parameters, prepare=True)
            left = await cursor.fetchall()
        locked = tuple(id_ for id_, is_mine in left if is_mine and id_ not in free)
        self.in_purge = frozenset(locked)
        return purged(left, locked)


def purged(left: Collection[tuple[Any, ...]], locked: tuple[int, ...] = ()) -> Purged:
    """Return the result of a purge, from the rows of ``LEFT``."""
    mine = sum(is_mine for _, is_mine in left)
    return Purged(locked, mine - len(locked), len(left) - mine)
