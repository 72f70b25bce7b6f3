"""What can go wrong in ``oplog_sync``, and the exit code each leaves behind."""

from oplogd.errors import OplogError

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_TOO_MANY_DELETES = 3
EXIT_INVALID_ROWS = 4
EXIT_EMPTY_DUMP = 5
EXIT_TOO_MANY_CHANGES = 6
EXIT_FUTURE_ROWS = 7


class SyncError(OplogError):
    """The job cannot do its work. The message is a sentence that says what to change."""

    exit_code = EXIT_FAILED


class OptionError(SyncError, ValueError):
    """An option of the data source or a flag is wrong; the message names it."""

    exit_code = EXIT_USAGE


class GapError(SyncError):
    """A position is no longer in the log, or never was in this one."""


class AgentError(SyncError):
    """An agent does not answer, or not as an agent does."""


class RefusedError(SyncError):
    """A safety rule says no: nothing was emitted. ``exit_code`` tells which rule."""

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code
