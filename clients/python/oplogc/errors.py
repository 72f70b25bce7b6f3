"""Every error that these clients raise on purpose."""


class OplogError(Exception):
    """Base of them all."""


class OperationError(OplogError, ValueError):
    """An operation breaks a rule. ``field`` names the invalid part, ``reason`` the rule."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class BufferFullError(OplogError):
    """The producer's buffer has no room and its policy is ``raise``, or blocking took longer than
    allowed.
    """


class FlushError(OplogError):
    """Operations could not be delivered in time; they stay in the buffer.

    ``pending`` is their number.
    """

    def __init__(self, message: str, pending: int) -> None:
        super().__init__(message)
        self.pending = pending


class RefusedError(OplogError):
    """The agent refuses for good: a wrong password, an address that is no agent.

    ``status`` is the HTTP status.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"{detail} (HTTP {status})")
        self.status = status
        self.detail = detail


class ProtocolError(OplogError):
    """The bytes that came are not an agent's event stream."""


class StateFileError(OplogError):
    """The state file cannot be read or written, or holds something that is no position."""
