"""Every error that crosses a module boundary; foreign exceptions are translated where they arise."""


class OplogError(Exception):
    """Base of all errors raised on purpose."""


class OperationError(OplogError):
    """An operation breaks a rule. ``field`` names the part at fault, ``reason`` says what is wrong with it."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class PositionError(OplogError):
    """A position in the stream (an event id or a time) cannot be read."""


class QueueFullError(OplogError):
    """The ingest queue has no room now; trying later makes sense."""


class StoreError(OplogError):
    """The store refuses for good: another version, another program's file. The message says what to do."""


class StoreFlagError(StoreError):
    """A flag or the URL of the store cannot be used, whatever the database holds: starting again with it is useless."""


class StoreUnavailableError(StoreError):
    """The store does not answer now: locked, disk full, away. Trying again makes sense."""


class ForeignStoreError(StoreUnavailableError):
    """The file belongs to another program or to a newer oplog. At the start it is a bad setting."""


class NotConfirmedError(StoreUnavailableError):
    """The store has not confirmed operations that are being written. They stay, and may still be stored."""


class LogReplacedError(OplogError):
    """The log is not the one that was read before: at that offset it has another entry, or none by now."""


class StartupError(OplogError):
    """The agent cannot start. The message is one sentence that names the flag to change."""


class SettingError(StartupError):
    """A setting cannot be used. Starting again with it fails again."""
