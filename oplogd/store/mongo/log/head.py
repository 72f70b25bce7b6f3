"""The head of the log with the circumstances of its reading. No I/O."""

from typing import NamedTuple

from oplogd.model.event_id import Mark
from oplogd.store.mongo.link.inserts import AskTime
from oplogd.store.mongo.link.layout import Document


class Head(NamedTuple):
    """The newest entry of the log, as a majority had it.

    ``passed``: all entries after the offset ``known`` up to the newest; None if they were not read.
    """

    mark: Mark
    asked: AskTime
    known: int = 0
    passed: tuple[Document, ...] | None = None

    def last_of(self, writer: str, after: int) -> int | None:
        """Return the largest sequence of a writer past an offset, -1 if it has no entry there.

        None: ``passed`` does not reach back to that offset, so more must be read.
        """
        if self.passed is None or self.known > after:
            return None
        own = [each for each in self.passed if each.get("w") == writer and each["n"] > after]
        return max((int(each["s"]) for each in own), default=-1)
