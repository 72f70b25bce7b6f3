"""Appends of transactions. Waiting requests share one."""

import asyncio
from collections.abc import Sequence

from oplogd.store.mongo.topics.append import TopicAppender
from oplogd.store.mongo.topics.groups import Group


class _Request:
    """The groups of one caller. ``error``: of the append made for it."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = groups
        self.error: Exception | None = None


class SharedAppender:
    """Appends for one caller at a time, together for all waiting ones.

    Otherwise the requests of one agent would be in each other's way, above all in the commit log.
    """

    def __init__(self, appender: TopicAppender) -> None:
        self._appender = appender
        self._waiting: list[_Request] = []
        self._turn = asyncio.Lock()

    async def run(self, groups: Sequence[Group]) -> None:
        """Append the entries of groups in this order. Each entry has a condition.

        So the groups of a cancelled append can be appended again. Raises as ``TopicAppender``.
        """
        request = _Request(groups)
        self._waiting.append(request)
        try:
            async with self._turn:
                if request.error is not None:
                    raise request.error
                if any(group.todo for group in groups):
                    await self._run_all(list(self._waiting))
        finally:
            self._waiting.remove(request)

    async def _run_all(self, requests: Sequence[_Request]) -> None:
        try:
            await self._appender.run([group for each in requests for group in each.groups])
        except Exception as error:
            for each in requests:
                each.error = error
            raise
