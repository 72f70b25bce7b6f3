"""Appends under pointers. Waiting requests share one."""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from oplogd.model.event_id import Mark
from oplogd.store.mongo.topics.groups import Group, Numbered, Unless
from oplogd.store.mongo.transactions.appends import SharedAppender
from oplogd.store.pointers import Marks


class PointerAppender(SharedAppender):
    """Appends entries under pointers.

    An append runs to its end, also if a caller is cancelled meanwhile. Otherwise another caller
    would repeat the append, and DIRECT entries have no identity known before.
    """

    async def run(self, groups: Sequence[Group]) -> None:
        """Append the entries of groups in this order. Raises as ``TopicAppender``."""
        await to_end(super().run(groups))


class DirectGroup(Group):
    """``marks``: of the entries in the log, in order."""

    def __init__(self, log: int, todo: Iterable[Numbered], unless: Unless) -> None:
        super().__init__(log, todo, unless=unless)
        self.marks = Marks()

    def place(self, entry: Numbered, mark: Mark) -> None:
        super().place(entry, mark)
        self.marks.append(mark)


async def to_end(work: Coroutine[Any, Any, None]) -> None:
    """Await work to its end. A cancellation of the caller is raised afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    failure = task.exception()
    if cancelled is not None:
        raise cancelled
    if failure is not None:
        raise failure
