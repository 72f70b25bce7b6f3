"""How long a message is tried whose object cannot be fetched. No I/O."""

from collections.abc import Callable, Iterable

_REST = 0.1


class Patience:
    """Gives each such message its time. Then the message is refused.

    A failing server may serve other objects, or may be ill. So of several refused messages in a row
    the first has ``seconds``, and each later one a tenth of them. Once another message succeeds,
    the refused ones get one attempt more.
    """

    def __init__(self, seconds: float, now: Callable[[], float]) -> None:
        self._seconds = seconds
        self._now = now
        self._offset = -1
        self._since = 0.0
        self._in_row = False
        # Offset of a refused message -> whether it has had its last attempt.
        self._refused: dict[int, bool] = {}

    def is_over(self, offset: int) -> bool:
        """Note a failed message. Return whether its time is over."""
        now = self._now()
        if offset in self._refused:
            return True
        if offset != self._offset:
            self._offset, self._since = offset, now
        if now - self._since < self._seconds * (_REST if self._in_row else 1):
            return False
        self._refused[offset] = False
        self._in_row = True
        return True

    def succeed(self) -> None:
        """Note fetched objects of later messages."""
        self._in_row = False

    def may_try_again(self, offsets: Iterable[int]) -> bool:
        """Return whether one of the refused messages gets another attempt now."""
        again = [each for each in offsets if self._refused.get(each) is False]
        self._refused.update(dict.fromkeys(again, True))
        return bool(again)

    def forget(self) -> None:
        """Forget the refused messages: they are dead letters, or come again with all their time."""
        self._refused.clear()
        self._in_row = False
