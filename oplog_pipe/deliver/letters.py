"""Refused messages on their way to the dead-letter file, and the breaker before it.

Many refused messages in a row mean an ill target: their letters would drain the log into a file. So
the letters of a row are held until a later message succeeds.
"""

import os
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from oplog_kit.disk import disk_failure
from oplog_pipe.commitlog.files import FILE_MODE, FILES
from oplog_pipe.errors import SinkError
from oplog_pipe.message import Message

HOLD_SECONDS = 2.0
"""A letter of a row that is not full is written after this time without another message."""

_WINDOW_SECONDS = 60.0


class Letter(NamedTuple):
    message: Message
    reason: str


class DeadLetters:
    """Adds JSON lines to a file: a message as the log has it, and the reason.

    A message may have two lines after a crash. The file is created by the first one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, message: Message, reason: str) -> None:
        """Add a line. It is on disk when this returns. Raises SinkError."""
        names = ("offset", "op", "timestamp", "namespace", "id")
        members = {name: getattr(message, name) for name in names}
        members |= {"data": msgspec.Raw(message.json()), "error": reason}
        self.add_line(msgspec.json.encode(members))

    def add_line(self, line: bytes) -> None:
        """Add JSON of a letter, without its line feed. See ``add``."""
        try:
            is_new = not self._path.exists()
            private = partial(os.open, mode=FILE_MODE)
            with open(self._path, "ab+", opener=private) as file:
                if file.tell():
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":  # a crash has torn the last line
                        line = b"\n" + line
                file.write(line + b"\n")
                file.flush()
                os.fsync(file.fileno())
            if is_new:
                FILES.sync_folder(self._path.parent)
        except OSError as error:
            sentence = disk_failure(error, self._path, "dead_letter")
            raise SinkError(f"dead_letter: {sentence}") from error


class Breaker:
    """Tells a bad message from an ill target. No I/O.

    Trips at ``limit`` refusals in a row. Also at five times as many within a minute, if no more
    messages were written. ``limit`` 0: never. ``now``: seconds.
    """

    def __init__(self, limit: int, now: Callable[[], float]) -> None:
        self._limit = limit
        self._now = now
        self._row = 0
        # Second, messages written, messages refused.
        self._seconds: deque[tuple[int, int, int]] = deque()

    def succeed(self, count: int) -> None:
        self._row = 0
        self._note(count, 0)

    def refuse(self) -> bool:
        """Note a refusal. Return whether the breaker trips; it then begins anew."""
        self._row += 1
        self._note(0, 1)
        written = sum(each[1] for each in self._seconds)
        refused = sum(each[2] for each in self._seconds)
        is_many = refused >= 5 * self._limit and refused >= written
        if not self._limit or not (self._row >= self._limit or is_many):
            return False
        self._row = 0
        self._seconds.clear()
        return True

    def _note(self, written: int, refused: int) -> None:
        seconds, second = self._seconds, int(self._now())
        while seconds and seconds[0][0] <= second - _WINDOW_SECONDS:
            seconds.popleft()
        if seconds and seconds[-1][0] == second:
            _, before, refused_before = seconds.pop()
            written, refused = before + written, refused_before + refused
        seconds.append((second, written, refused))


class Letters:
    """The refused messages of a sink. ``file`` None: none may be refused."""

    def __init__(self, file: DeadLetters | None, limit: int, now: Callable[[], float]) -> None:
        self.file = file
        self.breaker = Breaker(limit, now)
        self.held: list[Letter] = []
        self.written = 0

    @property
    def offsets(self) -> list[int]:
        """Of the messages whose letters are held."""
        return [each.message.offset for each in self.held]

    def hold(self, message: Message, error: SinkError) -> None:
        """Hold a letter. Raises SinkError if the breaker trips: no letter is held then."""
        self.held.append(Letter(message, str(error)))
        if self.breaker.refuse():
            count, first = len(self.held), self.held[0]
            self.held.clear()
            raise SinkError(
                f"{count} messages in a row were refused, or as many as were written in a minute:"
                f" the target seems to be ill, so they are no dead letters. The first one:"
                f" {first.message!r}: {first.reason}"
            )

    def release(self) -> list[int]:
        """Write the held letters. Return the offsets of their messages. Raises SinkError."""
        offsets = []
        while self.held:
            message, reason = self.held[0]
            assert self.file is not None
            self.file.add(message, reason)
            offsets.append(message.offset)
            del self.held[0]
        self.written += len(offsets)
        return offsets
