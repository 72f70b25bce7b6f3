"""Voiding the entries of aborted pointers. The sweep does it.

``oplog_aborted`` holds ``{_id, log}`` for each pointer whose entries are to be voided: see
``rows``. A note leaves when no entry of the pointer is left, in a log that is gone, too. They are
voided as by a rollback: the rings of agents learn of the rollback from the log.
"""

import contextlib
from collections.abc import Callable

from pymongo.errors import DuplicateKeyError

from oplogd.store.mongo.decisions.rollbacks import Rollbacks
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.pointers.rows import key, pointer_and_log

ABORTED = "oplog_aborted"


class Aborted:
    """Methods raise PyMongo's errors, and StoreUnavailableError."""

    def __init__(self, link: Link, rollbacks: Rollbacks) -> None:
        self._notes = link.database[ABORTED]
        self._rollbacks = rollbacks

    async def note(self, pointer: int, log: int) -> None:
        """Note that the sweep may void all entries of a pointer."""
        with contextlib.suppress(DuplicateKeyError):
            await self._notes.insert_one({"_id": key(pointer, log), "log": log})

    async def void_all(self, is_allowed: Callable[[], bool]) -> None:
        """Void the entries of all pointers noted while it is allowed."""
        while is_allowed() and (note := await self._notes.find_one({})) is not None:
            pointer, log = pointer_and_log(note)
            todo = await self._rollbacks.pending(pointer, log)
            for each in todo or await self._rollbacks.note(pointer, log, None, is_free=True):
                await self._rollbacks.complete(each)
            if not todo:
                await self._notes.delete_one({"_id": note["_id"]})
