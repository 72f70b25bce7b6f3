"""Starts the workers, replaces one that dies, and ends all in order.

It has one thread, no event loop, and no store, so that it can fork at any time, and hardly anything
that can fail. It keeps all sockets: what comes while a worker is dead waits for the next one.
"""

import gc
import logging
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from types import FrameType

import msgspec

from oplog_kit.signals import ending_signals
from oplogd import server
from oplogd.announce import Served, announce
from oplogd.clock import SYSTEM, Clock
from oplogd.config.settings import Settings
from oplogd.host import link as words
from oplogd.host import systemd
from oplogd.host.link import Link
from oplogd.host.stop import EXIT_FAILED, EXIT_OK, EXIT_UNWRITTEN
from oplogd.listen import open_listeners
from oplogd.supervise import child
from oplogd.supervise.place import Place, State
from oplogd.workers.division import divided
from oplogd.workers.workers import Worker, Workers

# A worker ends itself at --shutdown-timeout, or soon after. Then it is killed.
_GRACE_SECONDS = 2.0

logger = logging.getLogger("oplogd.supervisor")


class Supervisor:
    """``on_ready`` gets the base URL as soon as all workers serve.

    Raises SettingError if the part of each worker of a setting would be too small.
    """

    def __init__(
        self,
        settings: Settings,
        on_ready: Callable[[str], None] | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        self._settings = settings
        self._on_ready = on_ready
        self._clock = clock
        self._workers = Workers(settings.workers, max_clients=settings.max_clients)
        self._part = divided(settings, settings.workers)
        self._places: list[Place] = []
        self._selector = selectors.DefaultSelector()
        self._served: Served | None = None
        self._is_announced = False
        # Signals to stop that have come, and that the workers were told of.
        self._asked = self._told = 0
        self._is_draining = False
        self._kill_at = float("inf")
        self._code = EXIT_OK

    def run(self) -> int:
        """Return the exit code: that of the worker that failed, else the worst of all.

        Raises StartupError.
        """
        self._handle_signals()
        listeners = open_listeners(self._settings)
        self._places = [Place(number, each) for number, each in enumerate(listeners)]
        gc.freeze()  # a collection would write to the memory that the workers share
        while True:
            self._start_due()
            for key, _ in self._selector.select(self._seconds()):
                key.data()
            self._reap()
            self._advance()
            while self._asked > self._told:
                self._advance()
            if self._told and not any(place.lives for place in self._places):
                return self._code

    def _handle_signals(self) -> None:
        woken, wake = socket.socketpair()
        for sock in (woken, wake):
            sock.setblocking(False)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        self._wake = wake  # closed with this object
        self._selector.register(woken, selectors.EVENT_READ, partial(woken.recv, 4096))
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in ending_signals():
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._asked += 1
        if self._asked == 1:  # even if a write to a full pipe holds up this process
            seconds = self._settings.shutdown_timeout + 2 * _GRACE_SECONDS
            signal.signal(signal.SIGALRM, lambda *_: self._leave())
            signal.setitimer(signal.ITIMER_REAL, seconds)

    def _leave(self) -> None:
        self._kill()
        os._exit(EXIT_UNWRITTEN)

    # --- Starts ---

    def _start_due(self) -> None:
        if self._told:
            return
        now = time.monotonic()
        for place in self._places:
            # The first worker opens the store before the others look at it.
            if self._served is None and place.number > 0:
                break
            if place.state is State.WAITS and place.start_at <= now:
                self._start(place)

    def _start(self, place: Place) -> None:
        ours, theirs = words.pair()
        sys.stderr.flush()
        signal.pthread_sigmask(signal.SIG_BLOCK, (*child.HANDLED, signal.SIGCHLD))
        pid = os.fork()
        if pid == 0:
            self._become_worker(place, ours, theirs)
        place.began(pid, ours)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (*child.HANDLED, signal.SIGCHLD))
        theirs.close()
        ours.setblocking(False)
        self._selector.register(ours, selectors.EVENT_READ, partial(self._read, place))

    def _become_worker(self, place: Place, ours: socket.socket, theirs: socket.socket) -> None:
        self._selector.close()
        ours.close()
        for other in self._places:
            if other.link is not None:
                other.link.close()
            if other is not place:
                other.listeners.close()
        worker = Worker(self._workers, place.number)
        joined = server.Joined(worker, place.listeners, Link(theirs))
        child.run(self._part, joined, self._clock)

    # --- Words and ends of workers ---

    def _read(self, place: Place) -> None:
        assert place.link is not None
        try:
            word = place.link.recv(words.MAX_WORD)
        except BlockingIOError:
            return
        except OSError:
            word = b""
        if word.startswith(words.READY):
            place.serves(time.monotonic())
            self._workers.began(place.number, place.pid)
            served = word.removeprefix(words.READY)
            self._served = self._served or msgspec.json.decode(served, type=Served)
        elif word == words.SHUT:
            place.state = State.SHUT
        elif not word:  # its end comes with SIGCHLD
            self._cut(place)

    def _cut(self, place: Place) -> None:
        if place.link is not None:
            self._selector.unregister(place.link)
            place.link.close()
            place.link = None

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            for place in self._places:
                if place.pid == pid and place.lives:
                    self._ended(place, os.waitstatus_to_exitcode(status))

    def _ended(self, place: Place, code: int) -> None:
        self._cut(place)
        self._workers.settle(place.number)
        how = f"ended with code {code}" if code >= 0 else f"was killed by signal {-code}"
        exit_code = code if code >= 0 else EXIT_FAILED
        if self._told:
            place.state = State.ENDED
            if code < 0:
                logger.error("worker %d %s while it stopped", place.number, how)
                exit_code = EXIT_UNWRITTEN
            if self._code == EXIT_OK:
                self._code = exit_code
            return
        if self._served is None:  # as an agent without workers: it has told the reason
            place.state = State.ENDED
            self._end(exit_code or EXIT_FAILED)
        elif place.has_died(time.monotonic()):
            logger.error("worker %d (process %d) %s: another starts", place.number, place.pid, how)
        else:
            place.state = State.ENDED
            logger.critical("worker %d %s again before it served", place.number, how)
            self._end(exit_code or EXIT_FAILED)

    # --- The stop ---

    def _advance(self) -> None:
        """Do what is due now."""
        states = {place.state for place in self._places}
        if states == {State.SERVES} and not self._is_announced and self._served is not None:
            self._is_announced = True
            first = self._places[0].listeners
            url = announce(self._settings, first.http, first.udp, self._served)
            systemd.notify("READY=1")
            if self._on_ready:
                self._on_ready(url)
        if self._asked > self._told:
            self._end(EXIT_OK)
            self._told += 1  # another signal may come now
            self._tell(words.STOP)
        if self._told and not self._is_draining and states <= {State.SHUT, State.ENDED}:
            self._is_draining = True
            self._tell(words.DRAIN)
        if time.monotonic() >= self._kill_at:
            self._kill_at = float("inf")
            logger.error("a worker does not end: killing it")
            self._kill()

    def _end(self, code: int) -> None:
        """Begin to stop, once. ``code``: of the agent, unless a worker ends with another."""
        if self._kill_at == float("inf") and not self._told:
            self._code = code
            systemd.notify("STOPPING=1")
            self._kill_at = time.monotonic() + self._settings.shutdown_timeout + _GRACE_SECONDS
            self._asked = max(1, self._asked)
        for place in self._places:
            place.listeners.close()
            if place.state is State.WAITS:
                place.state = State.ENDED

    def _tell(self, word: bytes) -> None:
        for place in self._places:
            if place.link is not None:
                words.send(place.link, word)

    def _kill(self) -> None:
        for place in self._places:
            if place.lives:
                os.kill(place.pid, signal.SIGKILL)

    def _seconds(self) -> float | None:
        """Return the seconds until something is due."""
        due = [self._kill_at] + [
            place.start_at
            for place in self._places
            if place.state is State.WAITS and self._served is not None
        ]
        seconds = min(due) - time.monotonic()
        return None if seconds == float("inf") else max(0.0, seconds)


def run(
    settings: Settings, on_ready: Callable[[str], None] | None = None, clock: Clock = SYSTEM
) -> int:
    """Run an agent of several workers until a signal ends it. Return the exit code.

    Raises StartupError and SettingError.
    """
    return Supervisor(settings, on_ready, clock).run()
