"""The steps of a sink in a task: filters, functions and fetches, before rows are put in order."""

from collections.abc import Sequence
from functools import partial

from oplog_pipe.deliver.patience import Patience
from oplog_pipe.deliver.retry import RetryClock
from oplog_pipe.deliver.steps import Steps
from oplog_pipe.errors import SinkError, TransformError
from oplog_pipe.message import Message
from oplog_pipe.model.reasons import of_code
from oplog_pipe.model.settings import SinkSettings
from oplog_pipe.spark.tasks.refusals import Refusals
from oplog_pipe.spark.tasks.rows import Row

# Of a timestamp: 64 bits.
_MOST = 1 << 63


class Changing:
    """Changes the rows of one task."""

    def __init__(
        self, settings: SinkSettings, steps: Steps, refusals: Refusals, clock: RetryClock
    ) -> None:
        self.filtered = 0
        self._size = settings.batch.messages
        self._has_letters = settings.dead_letter is not None
        self._steps = steps
        self._refusals = refusals
        self._patience = Patience(settings.retry_for, clock.now)
        self._next = 0

    def __call__(self, rows: Sequence[Row]) -> list[Row]:
        """Return what is left of messages. Raises SinkError."""
        found: list[Row] = []
        for start in range(0, len(rows), self._size):
            found += self._some(rows[start : start + self._size])
        return found

    def _some(self, rows: Sequence[Row]) -> list[Row]:
        found: list[Row] = []
        first, self._next = self._next, self._next + len(rows)
        at = 0
        while at < len(rows):
            rest = partial(self._step, first + at, rows[at:])
            try:
                messages, taken = self._refusals.retry(rest)
            except SinkError as error:
                if not self._refusals.may_be_dead(error):
                    raise
                self._refusals.refuse(rows[at], error)
                at += 1
                continue
            if messages:
                self._patience.succeed()
                self._refusals.succeed(len(messages))
            for place, message in messages:
                row = rows[at + place]
                try:
                    found.append(self._changed(row, message))
                except SinkError as error:
                    if not self._refusals.may_be_dead(error):
                        raise
                    self._refusals.refuse(row, error)
            self.filtered += taken - len(messages)
            at += taken
        return found

    def _step(self, first: int, rows: Sequence[Row]) -> tuple[list[tuple[int, Message]], int]:
        # Steps change messages, so each attempt has its own.
        messages = [row.message(number) for number, row in enumerate(rows, first)]
        try:
            return self._steps.placed(messages)
        except TransformError as error:
            if error.of_object:
                error.transient = not self._patience.is_over(first)
            raise

    def _changed(self, row: Row, message: Message) -> Row:
        try:
            data = message.json().decode()
            message.id.encode()
            message.namespace.encode()
            if not -_MOST <= message.timestamp < _MOST:
                raise OverflowError
        except Exception as error:
            reason = f"{message!r}: it cannot be sent on ({of_code(error)})"
            raise SinkError(reason) from None
        return row._replace(
            op=message.op,
            namespace=message.namespace,
            id=message.id,
            timestamp=message.timestamp,
            data=data,
            letter=row.original() if self._has_letters else None,
        )
