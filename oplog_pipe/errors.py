"""Every error the pipe raises on purpose. Messages name no secret."""

from oplog_kit.errors import ConfigError as ConfigError
from oplog_kit.errors import ProgramError

PipeError = ProgramError


class LogError(PipeError):
    """The commit log cannot be read or written. The message names the file."""


class NoLogError(LogError):
    """The folder holds no commit log."""


class LogDamagedError(LogError):
    """Bytes before the tail of a file are damaged. Names the file, and the place in it."""


class LogLockedError(LogError):
    """Another process uses the folder."""


class SourceError(PipeError):
    """A source refuses for good, or is no agent."""


class BrokenBatchError(PipeError):
    """Spark did not bring a batch to its end. Another attempt may."""


class GapError(SourceError):
    """Messages of a topic after the position are gone."""


class SinkError(PipeError):
    """A sink did not take messages. Nothing is acknowledged; some may have been written.

    - ``transient``: the same write may succeed later: the system is unreachable or busy.
    - ``index``: the message the system refused, counted in the batch; None: not known.
    """

    def __init__(self, message: str, *, transient: bool = False, index: int | None = None) -> None:
        super().__init__(message)
        self.transient = transient
        self.index = index


class TargetError(SinkError):
    """The target refuses every message: a wrong password, a missing table.

    No message is at fault, so none becomes a dead letter.
    """


class FencedError(TargetError):
    """A later writer of the same rows has begun. Nothing of the call was written."""


class TransformError(SinkError):
    """A transform or a fetch failed.

    ``of_object``: the server of one object fails, and may serve others. ``transient`` is then true.
    """

    of_object = False
