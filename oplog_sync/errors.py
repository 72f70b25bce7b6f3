"""The errors of ``oplog_sync`` and their exit codes."""

from oplogd.errors import OplogError

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_TOO_MANY_DELETES = 3
EXIT_INVALID_ROWS = 4
EXIT_EMPTY_DUMP = 5
EXIT_TOO_MANY_CHANGES = 6
EXIT_FUTURE_ROWS = 7
EXIT_OLD_DUMP = 8


class SyncError(OplogError):
    """The job cannot do its work. The message is a sentence and names the remedy."""

    exit_code = EXIT_FAILED


class GapError(SyncError):
    """Operations behind a position are not in the log any more, or never were."""


class MessagesGoneError(SyncError):
    """Messages of a topic behind a position are gone."""


class UnreachableError(SyncError):
    """No agent answers now. A later attempt may succeed."""


class AgentRefusedError(SyncError):
    """An agent refuses a request. ``status``: of its answer."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class OptionError(SyncError, ValueError):
    """An option of the data source or a flag is wrong. The message names it."""

    exit_code = EXIT_USAGE


class DumpError(SyncError):
    """The dump cannot be read. ``reason`` names the file or column, and the remedy."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the dump cannot be read: {reason}")


class SafetyRuleError(SyncError):
    """A safety rule stops the run before anything is emitted. ``exit_code`` identifies the rule."""

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code
