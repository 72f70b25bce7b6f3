"""The signals of a supervisor."""

import signal
import socket
from collections.abc import Callable
from types import FrameType

from oplog_kit.signals import ending_signals


class Signals:
    """Counts the signals to stop. ``seconds``: of a stop. ``leave`` is called if it takes longer.

    ``asked``: signals to stop that have come.
    """

    def __init__(self, seconds: float, leave: Callable[[], None]) -> None:
        self.asked = 0
        self._seconds = seconds
        self._leave = leave
        self._is_timed = False
        self._woken, self._wake = socket.socketpair()
        for sock in (self._woken, self._wake):
            sock.setblocking(False)

    def listen(self) -> socket.socket:
        """Handle the signals. Return a socket that can be read after each: call ``take`` then."""
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in ending_signals():
            signal.signal(number, self._ask)
        return self._woken

    def take(self) -> None:
        self._woken.recv(4096)

    def set_timer(self) -> None:
        """Leave when the stop takes too long, even if a write to a full pipe holds it up."""
        if not self._is_timed:
            self._is_timed = True
            signal.signal(signal.SIGALRM, lambda *_: self._leave())
            signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked += 1
        self.set_timer()
