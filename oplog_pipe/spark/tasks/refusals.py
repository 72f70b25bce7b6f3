"""What one sink's task does about failures: repeats, dead letters, and the end. No I/O."""

import threading
from collections.abc import Callable
from typing import TypeVar

from oplog_pipe.deliver.letters import Breaker
from oplog_pipe.deliver.retry import Retry, RetryClock
from oplog_pipe.errors import SinkError, TargetError
from oplog_pipe.model.settings import SinkSettings
from oplog_pipe.spark.tasks.rows import Row, letter

T = TypeVar("T")


class Refusals:
    """``letters``: rows of refused messages, which the task passes on."""

    def __init__(self, settings: SinkSettings, clock: RetryClock) -> None:
        self.letters: list[Row] = []
        self._has_letters = settings.dead_letter is not None
        self._breaker = Breaker(settings.dead_letter_limit, clock.now)
        self._retry = Retry(settings.name, settings.retry_for, threading.Event(), clock)

    @property
    def retries(self) -> int:
        return self._retry.retries

    def retry(self, call: Callable[[], T]) -> T:
        return self._retry(call)

    def may_be_dead(self, error: SinkError) -> bool:
        """Return whether a message is at fault, and there is a file for it."""
        is_of_message = not error.transient and not isinstance(error, TargetError)
        return is_of_message and self._has_letters

    def refuse(self, row: Row, error: SinkError) -> None:
        """Make a dead letter of a message. Raises SinkError if too many were refused."""
        self.letters.append(letter(row, str(error)))
        if self._breaker.refuse():
            raise SinkError(
                f"many messages in a row were refused, or as many as were written in a minute: the"
                f" target seems to be ill, so they are no dead letters. The last one: {error}"
            )

    def succeed(self, count: int) -> None:
        self._breaker.succeed(count)

    def take(self) -> list[Row]:
        taken, self.letters = self.letters, []
        return taken
