"""The connections of the sink for PostgreSQL, which work beside one another."""

from collections.abc import Callable, Sequence

from oplog_pipe.errors import SinkError
from oplog_pipe.sinks.postgres.rows import Statement
from oplog_pipe.sinks.postgres.session import Guard, Session

LANES = 2
SPLIT_FROM = 200
"""From this number of objects on, a batch is split by id over the lanes."""

# Batches written on one connection after the other one was refused.
_NARROW = 1000

Build = Callable[[int, bool], Sequence[Statement]]
"""Returns the statements of a lane. The flag: whether it may use temporary tables."""


class Lanes:
    """Writes a batch with one transaction on each connection.

    The server works at the first part while the second one is encoded. Each transaction locks rows
    in the order of their ids. If one fails, a repetition writes a committed one again, to the same
    effect.
    """

    def __init__(self, conninfo: str, timeout: float, *, creates: bool) -> None:
        self._sessions = [Session(conninfo, timeout, creates=creates) for _ in range(LANES)]
        self.main = self._sessions[0]
        """The session for everything but batches."""
        self._narrow = 0
        self._has_failed = False

    def count(self, objects: int) -> int:
        """Return the number of connections for a batch.

        1 after a failure, until a batch is written: the failure may be a deadlock of two parts.
        """
        if objects < SPLIT_FROM or self._has_failed:
            return 1
        if self._narrow:
            self._narrow -= 1
            return 1
        try:
            for each in self._sessions:
                each.connect()
        except SinkError:
            self.main.connect()
            self._narrow = _NARROW  # the server may allow this user one connection
            return 1
        return LANES

    def write(self, count: int, build: Build, *, keep: bool) -> list[tuple[Statement, int]]:
        """Write the statements of ``count`` lanes. ``keep`` False: roll them back.

        Return each statement with the number of rows it has changed. Raises SinkError after the end
        of all transactions. Any other exception closes all connections.
        """
        changed: list[tuple[Statement, int]] = []
        errors: list[SinkError] = []
        sent: list[Session] = []
        self._has_failed = True
        may_upload = all(each.may_upload for each in self._sessions)
        try:
            try:
                for number, session in enumerate(self._sessions[:count]):
                    session.send(build(number, may_upload), keep=keep)
                    sent.append(session)
            except SinkError as error:
                errors.append(error)
            for session in sent:
                try:
                    changed += session.finish()
                except SinkError as error:
                    errors.append(error)
        except BaseException:
            self.close()
            raise
        if errors:
            # A repetition tells the others.
            raise next((each for each in errors if each.transient), errors[0])
        self._has_failed = False
        return changed

    def guard(self, guard: Guard) -> None:
        """Let every later transaction begin with a guard."""
        for each in self._sessions:
            each.guard = guard

    def close(self) -> None:
        for each in self._sessions:
            each.close()
