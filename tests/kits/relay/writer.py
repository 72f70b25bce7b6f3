"""A service that writes to its outbox, some transactions slowly, and some of them rolled back."""

import itertools
import random
import threading
from collections import defaultdict
from collections.abc import Sequence

from tests.kits.relay.checker import Sent
from tests.kits.relay.outbox import OPLOG, DatabaseError, NewRow, OutboxTable, Session

MOST_ROWS = 4
# Shares of all transactions, and the seconds that a slow one stays open.
ROLLED_BACK = 0.1
SLOW = 0.03
SLOW_SECONDS = 0.05
PAUSE = 0.2
# Numbers of rows that are rolled back begin here.
NEVER = 1_000_000


def log_of(topic: str) -> str:
    """Return the name of the log that rows with this topic go to."""
    return topic if topic == OPLOG or "/" in topic else f"default/{topic}"


class Writer(threading.Thread):
    """Writes rows until it is stopped, with keys that only this writer uses.

    ``committed``: what may arrive, by key. ``rolled_back``: rows that may not. A database that is
    away is waited for; whether the transaction in progress was committed is read afterwards.
    """

    def __init__(
        self, table: OutboxTable, name: str, keys: Sequence[str], topics: Sequence[str], seed: int,
        pause: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(daemon=True)
        self._table = table
        self._name = name
        self._keys = keys
        self._topics = topics
        self._choose = random.Random(seed)
        self._pause = pause
        self._numbers: dict[str, int] = defaultdict(int)
        self._never = itertools.count(NEVER)
        self._stopped = threading.Event()
        self._changed = threading.Condition()
        self.committed: dict[str, list[Sent]] = defaultdict(list)
        self.rows = 0
        self.rolled_back = 0
        self.error: BaseException | None = None

    def wait_rows(self, rows: int, seconds: float) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.rows >= rows or self.error, seconds)
        if self.error:
            raise self.error

    def stop(self) -> None:
        self._stopped.set()
        self.join(60)
        assert not self.is_alive()
        if self.error:
            raise self.error

    def run(self) -> None:
        try:
            for number in itertools.count():
                if self._stopped.wait(self._pause):
                    return
                self._transact(f"{self._name}-{number}")
        except BaseException as error:
            self.error = error
        finally:
            if self._session is not None:
                self._session.close()

    _session: Session | None = None

    def _transact(self, id_: str) -> None:
        rolls_back = self._choose.random() < ROLLED_BACK
        rows = self._rows(rolls_back)
        slow = SLOW_SECONDS if self._choose.random() < SLOW else 0.0
        while not self._try(id_, rows, slow, rolls_back):
            if self._stopped.wait(PAUSE) and not self._is_reachable():
                raise AssertionError("the database is unreachable at the end")
        with self._changed:
            if rolls_back:
                self.rolled_back += len(rows)
            else:
                self.rows += len(rows)
                for row in rows:
                    self._numbers[row.key] = row.number + 1
                    self.committed[row.key].append(Sent(log_of(row.topic), row.number))
            self._changed.notify_all()

    def _rows(self, rolls_back: bool) -> list[NewRow]:
        rows: list[NewRow] = []
        for _ in range(self._choose.randint(1, MOST_ROWS)):
            key = self._choose.choice(self._keys)
            before = sum(row.key == key for row in rows)
            number = next(self._never) if rolls_back else self._numbers[key] + before
            deletes = self._choose.random() < 0.1
            rows.append(NewRow(self._choose.choice(self._topics), key, number, deletes))
        return rows

    def _try(self, id_: str, rows: Sequence[NewRow], slow: float, rolls_back: bool) -> bool:
        """Return whether the transaction has ended as wanted, now or in an earlier try."""
        try:
            if self._session is None:
                self._session = Session(self._table.url)
            session = self._session
            if session.execute("SELECT 1 FROM done WHERE id = ?", id_):
                session.rollback()
                return True
            session.insert_many(rows)
            if slow:
                self._stopped.wait(slow)
            if rolls_back:
                session.rollback()
            else:
                session.execute("INSERT INTO done (id) VALUES (?)", id_)
                session.commit()
            return True
        except DatabaseError:
            if self._session is not None:
                self._session.close()
                self._session = None
            return False

    def _is_reachable(self) -> bool:
        try:
            with self._table.session():
                return True
        except DatabaseError:
            return False
