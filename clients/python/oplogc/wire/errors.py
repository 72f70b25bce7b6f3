"""Every error that these clients raise on purpose."""


class OplogError(Exception):
    """Base of them all."""


class _FieldError(OplogError, ValueError):
    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class OperationError(_FieldError):
    """An operation breaks a rule. ``field`` names the invalid part, ``reason`` the rule."""


class MessageError(_FieldError):
    """A message breaks a rule. ``field`` names the invalid part, ``reason`` the rule."""


class BufferFullError(OplogError):
    """The buffer has no room: the policy is to raise, or blocking took longer than allowed."""


class FlushError(OplogError):
    """Operations or messages could not be delivered in time. They stay in the buffer.

    ``pending`` is their number.
    """

    def __init__(self, message: str, pending: int) -> None:
        super().__init__(message)
        self.pending = pending


class RefusedError(OplogError):
    """The agent refuses for good: a wrong password, an address without an agent.

    ``status`` is the HTTP status.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"{detail} (HTTP {status})")
        self.status = status
        self.detail = detail


class NotAllowed(RefusedError):
    """The password is missing or wrong (401), or the agent refuses the request's origin (403)."""


class TopicNotFound(RefusedError):
    """There is no such topic (404)."""


class TopicAlreadyExists(RefusedError):
    """There is a topic of this name already (409)."""


class BadRequestError(RefusedError, ValueError):
    """The agent finds a mistake in the request, or the request is too large (400, 413, 415)."""


class StaleTermError(RefusedError):
    """The term of a named consumer's reader is over (412).

    Another reader has taken its shard, or the shard was moved to another position.
    """


class UnavailableError(OplogError):
    """No agent has confirmed a request in the time allowed.

    ``lost``: whether an agent may have carried it out.
    """

    def __init__(self, message: str, lost: bool = True) -> None:
        super().__init__(message)
        self.lost = lost


class TransactionError(OplogError):
    """A transaction is not committed, or must be rolled back.

    Its ``__cause__`` is the agent's refusal, if there is one.
    """


class AlreadyCommittedError(TransactionError):
    """Another transaction has committed this number: see ``once``. ``txn`` is its id."""

    def __init__(self, txn: str) -> None:
        super().__init__(f"transaction {txn} has committed this number already")
        self.txn = txn


class OutcomeUnknownError(UnavailableError):
    """No agent has confirmed a commit in the time allowed: the transaction may be committed.

    Or no agent has confirmed messages under a pointer: they may be stored. Or none has confirmed
    the abort before a rollback: the pointer may have committed, and nothing was rolled back.
    """


class ProtocolError(OplogError):
    """The received bytes are not an agent's."""


class StateFileError(OplogError):
    """The state file cannot be read or written, or holds no position."""
