"""The conditional append: the only way into the log.

See ``inserts``. The order of the steps matters. Operations judged before the head is read may land
in between, and are doubled. A head without a majority may vanish in a fail-over, and leave a hole.

A stray is before the front of the log, where no reader looks. So a late insert counts only if the
checkpoint shows that it is folded or will be.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from oplogd.errors import StoreUnavailableError
from oplogd.model.event_id import Mark
from oplogd.store.mongo.link.inserts import Obstacle, insert_until_taken
from oplogd.store.mongo.link.layout import Numbered, OfTransaction, entry_document, entry_id
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.timing import RECENT_SECONDS
from oplogd.store.mongo.log.ends import Head
from oplogd.store.mongo.log.log import Log
from oplogd.store.mongo.log.room import LogRoom

# As RECENT_SECONDS by the cluster's clock, for a machine whose own clock stood still. It moves only
# with writes, such as renewals of the lease, in whole seconds.
RECENT_SERVER_SECONDS = 3

# A writer with so many strays in a row was not late: the log does not fit its checkpoint.
_MOST_STRAYS = 3


class ConditionalBatch(Protocol):
    """Operations with one condition. ``todo``: the rest of them."""

    todo: list[Numbered]

    @property
    def writer(self) -> str | OfTransaction | None:
        """The token of the entries, or their transaction; None: neither."""

    async def head(self) -> Head:
        """Return the head to append behind.

        A majority has it, and ``judge`` knows every entry up to it.
        """

    async def judge(self, head: Head, chunk: Sequence[Numbered]) -> list[Numbered]:
        """Return the operations of the chunk that may go in behind ``head``.

        Remove from ``todo`` all others: they are in already or may not go in.
        """

    async def standing(self, landed: Sequence[Numbered], first: int) -> list[Numbered]:
        """Return the operations of a late insert that are folded or will be.

        ``first``: offset of the first one.
        """

    def landed(self, landed: Sequence[Numbered], head: Head | None, *, is_beaten: bool) -> None:
        """Remove these operations from ``todo``.

        ``head``: the last of them; None: the log must be read again. ``is_beaten``: another entry
        was in the way of the next operation.
        """


class OrderedBatch(ABC):
    """A ``ConditionalBatch`` whose numbers ascend along the log, each appended once."""

    def __init__(self, todo: list[Numbered]) -> None:
        self.todo = todo

    @abstractmethod
    async def folded(self) -> tuple[int, int]:
        """Return the checkpoint's offset, and the largest number folded at least; -1: none is."""

    async def standing(self, landed: Sequence[Numbered], first: int) -> list[Numbered]:
        folded, last = await self.folded()
        return [
            each for offset, each in enumerate(landed, first) if offset > folded or each[0] <= last
        ]

    def remove(self, last: int) -> None:
        self.todo = [each for each in self.todo if each[0] > last]


class LogLanding(NamedTuple):
    """``number``: how many operations landed. ``head``: the last of them. See ``Landing``."""

    number: int
    head: Head
    is_late: bool


class ConditionalAppender:
    def __init__(self, link: Link, log: Log, room: LogRoom) -> None:
        self._link = link
        self._log = log
        self._room = room

    async def append(self, batch: ConditionalBatch) -> None:
        """Append the operations of a batch within its condition.

        Raises StoreUnavailableError if a majority lags for ``Timing.majority_seconds``.
        """
        obstacle = Obstacle(self._link)
        strays = 0
        while batch.todo:
            chunk = await self._room.chunk(batch.todo)
            head = await batch.head()
            obstacle.compare(head.mark.offset)
            accepted = await batch.judge(head, chunk)
            if not accepted:
                continue
            landing = await self.insert(head, accepted, batch.writer)
            is_beaten = landing.number < len(accepted)
            landed = standing = accepted[: landing.number]
            if landed and landing.is_late:
                standing = await batch.standing(landed, head.mark.offset + 1)
            if len(standing) < len(landed):
                await self._remove_strays(head.mark, landed, standing, landing.head.mark)
                batch.landed(standing, None, is_beaten=is_beaten)
                strays += 1
                if strays == _MOST_STRAYS:
                    raise StoreUnavailableError(
                        f"MongoDB at {self._link.hosts}: the log ends with offset"
                        f" {head.mark.offset}, before the checkpoint in oplog_meta; were they"
                        " restored from different times?"
                    )
                continue
            if landed:
                strays = 0
                self._log.known.saw_entry(landing.head.mark)
                self._log.known.appended.notify()
            batch.landed(landed, landing.head, is_beaten=is_beaten)
            if is_beaten:
                await obstacle.met(head.mark.offset + landing.number + 1)

    async def insert(
        self, head: Head, chunk: Sequence[Numbered], writer: str | OfTransaction | None
    ) -> LogLanding:
        """Insert a chunk behind ``head``, up to the first taken offset.

        A majority has the operations that landed.
        """
        now_ms = max(await self._link.now_ms(), head.mark.ms)
        marks = [Mark(head.mark.offset + number, now_ms) for number in range(1, len(chunk) + 1)]
        documents = [
            entry_document(operation, mark, writer, sequence)
            for mark, (sequence, operation) in zip(marks, chunk, strict=True)
        ]
        landing = await insert_until_taken(
            self._link,
            self._link.log,
            documents,
            head.asked,
            RECENT_SECONDS,
            RECENT_SERVER_SECONDS,
        )
        is_late = landing.is_late or head.mark.offset < self._log.known.folded
        if landing.number:
            head = Head(marks[landing.number - 1], landing.asked)
        return LogLanding(landing.number, head, is_late)

    async def _remove_strays(
        self, head: Mark, inserted: Sequence[Numbered], standing: Sequence[Numbered], last: Mark
    ) -> None:
        """Delete strays of this insert before a plain log. A capped log drops them in time.

        They are strays if there is a gap between ``last`` and the log.
        """
        if self._log.known.capped_bytes or await self._log.has(last.offset + 1):
            return
        numbers = {number for number, _ in standing}
        offsets = [
            offset
            for offset, (number, _) in enumerate(inserted, head.offset + 1)
            if number not in numbers
        ]
        ids = [entry_id(Mark(offset, last.ms)) for offset in offsets]
        await self._link.log.delete_many({"_id": {"$in": ids}})
