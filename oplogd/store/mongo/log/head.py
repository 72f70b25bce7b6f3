"""The head of the log with the circumstances of its reading. No I/O."""

from typing import NamedTuple

from pymongo.asynchronous.client_session import AsyncClientSession

from oplogd.model.event_id import Mark
from oplogd.store.mongo.link.layout import Document


class Head(NamedTuple):
    """The newest entry of the log, as a majority had it.

    ``asked_at``: time by ``Clock.boot`` at which the question was sent. ``server_seconds``: the
    cluster's time in the answer, in whole seconds; None if the server does not tell it.
    ``passed``: all entries after the offset ``known`` up to the newest; None if they were not read.
    """

    mark: Mark
    asked_at: float
    server_seconds: int | None = None
    known: int = 0
    passed: tuple[Document, ...] | None = None

    def last_of(self, writer: str, after: int) -> int | None:
        """Return the largest sequence of a writer past an offset, -1 if it has no entry there.

        None: ``passed`` does not reach back to that offset, so that more must be read.
        """
        if self.passed is None or self.known > after:
            return None
        return max(
            (
                int(each["s"])
                for each in self.passed
                if each.get("w") == writer and each["n"] > after
            ),
            default=-1,
        )


def server_seconds(session: AsyncClientSession | None) -> int | None:
    """Return the cluster's time in the last answer of a session; None if there is none."""
    at = session.operation_time if session else None
    return at.time if at else None
