"""The space for waiting messages. No I/O."""

import threading
import time


class BufferRoom:
    """Bounds messages and bytes. Any thread may call any method."""

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        if min(max_messages, max_bytes) < 1:
            raise ValueError("max_buffered and max_buffered_bytes must be at least 1")
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._bytes = 0
        self._changed = threading.Condition()
        self._closed = False
        self.messages = 0
        """Number of waiting messages, those in flight included."""

    def take(self, messages: int, size: int, wait: float | None = 0.0) -> bool:
        """Return whether there is space in ``wait`` seconds. Anything fits an empty buffer."""
        until = None if wait is None else time.monotonic() + wait
        with self._changed:
            while not self._closed and not self._fits(messages, size):
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._changed.wait(None if left is None else min(left, threading.TIMEOUT_MAX))
            self.messages += messages
            self._bytes += size
            return True

    def give(self, messages: int, size: int) -> None:
        """Give space back."""
        with self._changed:
            self.messages -= messages
            self._bytes -= size
            self._changed.notify_all()

    def close(self) -> None:
        """Release all waiters. The buffer then refuses them."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _fits(self, messages: int, size: int) -> bool:
        return not self.messages or (
            self.messages + messages <= self._max_messages and self._bytes + size <= self._max_bytes
        )
