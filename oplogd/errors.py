"""The errors that cross module boundaries. Each module translates foreign exceptions itself."""

from oplog_kit.wording import shortened


class OplogError(Exception):
    """Base of all errors of oplog."""


class FieldError(OplogError):
    """A part of a client's request breaks a rule.

    ``field``: the part at fault, shortened if it has a long name. ``reason``: the fault.
    """

    def __init__(self, field: str, reason: str) -> None:
        self.field = shortened(field)
        self.reason = reason
        super().__init__(f"{self.field}: {reason}")


class OperationError(FieldError):
    """An operation breaks a rule."""


class PositionError(OplogError):
    """A position (an event id, a replication id or a message id) cannot be parsed."""


class FilterError(FieldError):
    """The filter of a stream breaks a rule."""


class TooManyShardsError(OplogError):
    """Readers divide a log into shards in as many ways as they may."""


class RightError(FieldError):
    """A right breaks a rule. The message repeats no value."""


class MessageError(FieldError):
    """A message of a topic breaks a rule."""


class MessageTooLargeError(MessageError):
    """A message of a topic is larger than it may be."""


class TopicError(FieldError):
    """A name or property of a topic breaks a rule."""


class TopicNotFoundError(OplogError):
    """There is no topic of this name, or it was deleted meanwhile."""


class TopicExistsError(OplogError):
    """A topic of this name exists already."""


class NoLogNumberError(OplogError):
    """The store has no free number for the log of another topic. The message says what to do."""


class TopicFullError(OplogError):
    """A topic, or all of them, have no room, and the oldest is still needed. Try again later.

    The message names the bound and what fills it.
    """


class TransactionNotFoundError(OplogError):
    """There is no transaction with this id, or it was forgotten."""


class TransactionConflictError(OplogError):
    """A transaction is in another state, or has other records, than the request takes for granted.

    The message gives the reason.
    """


class TransactionTooLargeError(OplogError):
    """A transaction would have more records or bytes than it may."""


class OnceKeyNotFoundError(OplogError):
    """No transaction has committed with this key."""


class TooManyKeysError(OplogError):
    """The store has as many keys of transactions as it may. The message says what to do."""


class LeaseError(FieldError):
    """A lease, or the fence of a publish, breaks a rule."""


class LeaseNotFoundError(OplogError):
    """No client ever held a lease of this name."""


class LeaseConflictError(OplogError):
    """A lease has another holder or term than the request takes for granted."""


class ConsumerError(FieldError):
    """The settings of a named consumer, or an acknowledgement, break a rule."""


class ConsumerNotFoundError(OplogError):
    """There is no named consumer, or no shard of it, or it was deleted."""


class ConsumerExistsError(OplogError):
    """A named consumer with other settings exists already."""


class TooManyConsumersError(OplogError):
    """The store has as many named consumers as it may. The message says what to do."""


class StaleTermError(OplogError):
    """A shard of a named consumer has another term than the request."""


class StaleFenceError(OplogError):
    """The term of a publish or of a transaction is over: nothing was stored."""


class QueueFullError(OplogError):
    """The ingest queue has no room now. Trying again later makes sense."""


class StoreError(OplogError):
    """The store cannot be used. The message says what to do."""


class StoreFlagError(StoreError):
    """A flag or the URL of the store is wrong, whatever the database holds.

    Starting again with it fails again.
    """


class StoreUnavailableError(StoreError):
    """The store does not work now: locked, disk full, unreachable. Trying again makes sense."""


class DiskFullError(StoreUnavailableError):
    """The disk of the store has too little free space to take anything. Nothing was stored."""


class ForeignStoreError(StoreUnavailableError):
    """The file belongs to another program or to a newer oplog. At the start it is a bad setting."""


class NotConfirmedError(StoreUnavailableError):
    """The store has not confirmed a write. The write may be durable already, or later."""


class LogReplacedError(OplogError):
    """Another log has replaced the one that was read: an entry differs or is missing."""


class StartupError(OplogError):
    """The agent cannot start. The message is one sentence that names the flag to change."""


class SettingError(StartupError):
    """A setting cannot be used. Starting again with it fails again."""
