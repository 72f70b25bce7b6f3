"""Every error the relay raises on purpose. Messages name no secret."""

from oplog_kit.errors import ConfigError as ConfigError
from oplog_kit.errors import ProgramError

RelayError = ProgramError


class OutboxError(RelayError):
    """The database did not do as asked, or did not confirm it. Trying again makes sense."""


class LeaseUnavailableError(RelayError):
    """No agent has answered about the lease. It may have carried the request out all the same."""


class RowError(RelayError, ValueError):
    """An outbox row cannot be inserted. The message begins with the name of the field."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason
