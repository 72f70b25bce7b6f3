"""Marks and purges in PostgreSQL without the rows locked by other transactions.

They take several statements, so they are used only after a statement has waited for a lock.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from oplog_relay.db.postgres import sql
from oplog_relay.db.postgres.lane import Connection, fetch
from oplog_relay.model.bindings import Purged

# Seconds after which rows of locked keys are looked at again.
_LOOK_AGAIN_S = 1.0
# Keys at which they are forgotten and found anew.
_MAX_KEYS = 10_000
# Attempts of a mark to find rows of other keys than the ones just found locked.
_ROUNDS = 10
_LARGEST_ID = 2**63 - 1


class LockedRows:
    """Remembers what was locked. ``named`` puts the names into a statement."""

    def __init__(self, named: Callable[[str], bytes], clock: Callable[[], float]) -> None:
        self._named = named
        self._clock = clock
        # Keys with a locked row before others, found at a time.
        self._keys: set[str] = set()
        self._found_at = 0.0
        # Whether a mark with a wait for locks would probably meet one.
        self.are_likely = False
        # Ids of the rows the last purge has left.
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
            await connection.execute(sql.WAIT)
            for _ in range(_ROUNDS):
                asked = {**parameters, "passed": [*passed, *self._keys]}
                chosen = await self._choose(connection, asked)
                if chosen is not None:
                    break
            if not chosen:
                return []
            stamped = {**parameters, "ids": chosen}
            return await fetch(connection, self._named(sql.STAMP_IDS), stamped)

    async def _choose(
        self, connection: Connection, parameters: Mapping[str, Any]
    ) -> list[int] | None:
        """Lock and return rows to stamp. None: there may be some of other keys."""
        free = await fetch(connection, self._named(sql.FREE), parameters)
        is_whole = len(free) < parameters["limit"]
        through = _LARGEST_ID if is_whole else free[-1][0]
        asked = {**parameters, "through": through, "free": [id_ for id_, _ in free]}
        first_locked: dict[str, int] = {}
        for id_, key in await fetch(connection, self._named(sql.LOCKED), asked):
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
        """Delete the unlocked rows."""
        async with connection.transaction():
            await connection.execute(sql.WAIT)
            mine = await fetch(connection, self._named(sql.FREE_OF_MINE), parameters)
            free = {id_ for (id_,) in mine}
            await connection.execute(self._named(sql.DELETE), {"free": [*free]}, prepare=True)
            left = await fetch(connection, self._named(sql.LEFT), parameters)
        locked = tuple(id_ for id_, is_mine in left if is_mine and id_ not in free)
        self.in_purge = frozenset(locked)
        return purged(left, locked)


def purged(left: Collection[tuple[Any, ...]], locked: tuple[int, ...] = ()) -> Purged:
    """Return the result of a purge, from the rows of ``LEFT``."""
    mine = sum(is_mine for _, is_mine in left)
    return Purged(locked, mine - len(locked), len(left) - mine)
