"""The end of a process by signals: the first one asks, the second one ends it at once."""

import _thread
import asyncio
import logging
import os
import signal
import threading

from oplog_kit.signals import ending_signals

EXIT_FAILED = 1
# How long the end waits for the log to take the last words.
_LAST_WORDS_SECONDS = 1.0


class Ending:
    """Ends the process. ``code``: its exit code. ``asked``: set by the first signal.

    ``last_words``: logged when a second signal ends the process at once, with exit code 1.
    """

    def __init__(self, logger: logging.Logger, last_words: str) -> None:
        self.code = EXIT_FAILED
        self.asked = asyncio.Event()
        self._logger = logger
        self._last_words = last_words
        self._is_said = threading.Event()

    def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Handle the signals."""

        def first(number: signal.Signals) -> None:
            for each in heeded:
                loop.remove_signal_handler(each)
                signal.signal(each, lambda *_: self._leave_at_once())
            self._logger.info("stopping: %s", number.name)
            self.asked.set()

        heeded = ending_signals()
        for number in heeded:
            loop.add_signal_handler(number, first, number)

    def within(self, seconds: float) -> None:
        """End the process after this time, whatever hangs: a thread may wait for a database."""
        watchdog = threading.Timer(seconds, lambda: os._exit(self.code))
        watchdog.daemon = True
        watchdog.start()

    def _leave_at_once(self) -> None:
        # The signal may have interrupted a write to the log. That goes on after this handler, so
        # other threads wait for it. `threading` has locks that the signal may have interrupted too.
        _thread.start_new_thread(self._say_last_words, ())
        _thread.start_new_thread(self._leave, ())

    def _say_last_words(self) -> None:
        self._logger.warning("%s", self._last_words)
        self._is_said.set()

    def _leave(self) -> None:
        self._is_said.wait(_LAST_WORDS_SECONDS)  # the log may hang
        os._exit(EXIT_FAILED)
