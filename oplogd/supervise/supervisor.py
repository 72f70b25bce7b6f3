"""Starts the workers, replaces one that dies, and ends all in order.

It has one thread, no event loop, and no store, so that it can fork at any time, and hardly anything
that can fail. It keeps all sockets: what comes while a worker is dead waits for the next one.
"""

import contextlib
import gc
import logging
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from oplogd import server
from oplogd.agent import END_SECONDS
from oplogd.announce import Served, announce
from oplogd.clock import SYSTEM, Clock
from oplogd.config.settings import Settings
from oplogd.errors import StartupError
from oplogd.host import link as words
from oplogd.host import systemd
from oplogd.host.stop import EXIT_FAILED, EXIT_OK, EXIT_UNWRITTEN
from oplogd.listen import open_listeners
from oplogd.supervise import child
from oplogd.supervise.place import Place, State
from oplogd.supervise.signals import Signals
from oplogd.workers.division import divided
from oplogd.workers.workers import Workers

# A worker ends itself at --shutdown-timeout, or soon after. Then it is killed.
_GRACE_SECONDS = 2.0

# Nobody reads the datagrams of these places.
_ORPHANS = (State.WAITS, State.STARTS)

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
        self._is_ending = self._is_draining = False
        self._signals = Signals(settings.shutdown_timeout + 2 * _GRACE_SECONDS, self._leave)
        # Orders to stop that the workers were told.
        self._told = 0
        # When the streams end even if not all intake has, and when workers are killed.
        self._drain_at = self._kill_at = float("inf")
        self._code = EXIT_OK

    def run(self) -> int:
        """Return the exit code: that of the worker that failed, else the worst of all.

        Raises StartupError.
        """
        self._selector.register(self._signals.listen(), selectors.EVENT_READ, self._signals.take)
        listeners = open_listeners(self._settings)
        self._places = [Place(number, each) for number, each in enumerate(listeners)]
        gc.freeze()  # a collection would write to the memory that the workers share
        while True:
            self._start_due()
            for key, _ in self._selector.select(self._seconds()):
                key.data()
            self._reap()
            self._advance()
            if self._is_ending and not any(place.lives for place in self._places):
                return self._code

    def _leave(self) -> None:
        """End at once: the stop has not."""
        self._kill()
        os._exit(EXIT_UNWRITTEN)

    # --- Starts ---

    def _start_due(self) -> None:
        if self._is_ending:
            return
        now = time.monotonic()
        for place in self._places:
            # The first worker opens the store before the others look at it.
            if self._served is None and place.number > 0:
                break
            if place.state is State.WAITS and place.start_at <= now:
                self._start(place)

    def _start(self, place: Place) -> None:
        sys.stderr.flush()
        try:
            ours, theirs = words.pair()
        except OSError as error:
            self._put_off(place, error)
            return
        with theirs:
            signal.pthread_sigmask(signal.SIG_BLOCK, (*child.HANDLED, signal.SIGCHLD))
            try:
                pid = os.fork()
                if pid == 0:
                    birth = child.Birth(self._workers, self._places, place, theirs)
                    child.run(self._part, birth, (self._selector, ours), self._clock)
                place.began(pid, ours)
            except OSError as error:
                ours.close()
                self._put_off(place, error)
                return
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, (*child.HANDLED, signal.SIGCHLD))
        ours.setblocking(False)
        self._selector.register(ours, selectors.EVENT_READ, partial(self._read, place))

    def _put_off(self, place: Place, error: OSError) -> None:
        reason = f"cannot start worker {place.number}: {error.strerror or error}"
        if self._served is None:
            raise StartupError(reason)
        place.put_off(time.monotonic())
        logger.error("%s; trying again", reason)

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
            if not self._is_ending:
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
                    place.pid = 0  # another process may get this number
                    self._ended(place, os.waitstatus_to_exitcode(status))

    def _ended(self, place: Place, code: int) -> None:
        self._cut(place)
        self._workers.settle(place.number)
        how = f"ended with code {code}" if code >= 0 else f"was killed by signal {-code}"
        exit_code = code if code >= 0 else EXIT_FAILED
        if self._is_ending:
            place.state = State.ENDED
            if code < 0:
                logger.error("worker %d %s while it stopped", place.number, how)
                exit_code = EXIT_UNWRITTEN
            if self._code == EXIT_OK:
                self._code = exit_code
            return
        if self._served is None:  # as an agent without workers: it has told the reason
            place.state = State.ENDED
            if code < 0:
                logger.critical("worker %d %s before it served", place.number, how)
            self._end(exit_code or EXIT_FAILED)
        elif place.has_died(time.monotonic()):
            logger.error("worker %d %s: another starts", place.number, how)
        else:
            place.state = State.ENDED
            logger.critical("worker %d %s again before it served", place.number, how)
            self._end(exit_code or EXIT_FAILED)

    # --- The stop ---

    def _advance(self) -> None:
        """Do what is due now."""
        if self._signals.asked:
            self._end(EXIT_OK)
        states = {place.state for place in self._places}
        if (
            self._served
            and states == {State.SERVES}
            and not (self._is_announced or self._is_ending)
        ):
            self._is_announced = True
            first = self._places[0].listeners
            url = announce(self._settings, first.http, first.udp, self._served)
            systemd.notify("READY=1")
            if self._on_ready:
                self._on_ready(url)
        now = time.monotonic()
        is_due = now >= self._drain_at or states <= {State.SHUT, State.ENDED}
        if self._told and is_due and not self._is_draining:
            self._is_draining = True
            self._tell(words.DRAIN)
        while self._is_ending and self._told < max(1, self._signals.asked):  # it may grow meanwhile
            self._told += 1
            self._tell(words.STOP)
        if now >= self._kill_at:
            self._kill_at = float("inf")
            logger.error("a worker does not end: killing it")
            self._kill()

    def _end(self, code: int) -> None:
        """Begin to stop, once. ``code``: of the agent, unless a worker ends with another."""
        if self._is_ending:
            return
        self._is_ending, self._code = True, code
        systemd.notify("STOPPING=1")
        timeout, now = self._settings.shutdown_timeout, time.monotonic()
        self._drain_at = now + timeout - min(END_SECONDS, timeout / 2)
        self._kill_at = now + timeout + _GRACE_SECONDS
        self._signals.set_timer()
        orphans = [str(each.number) for each in self._places if each.state in _ORPHANS]
        heirs = [each for each in self._places if each.state is State.SERVES]
        if heirs and orphans:
            self._told += 1
            self._tell(words.STOP + f" {' '.join(orphans)}".encode(), heirs[:1])
            self._tell(words.STOP, [each for each in self._places if each is not heirs[0]])
        for place in self._places:
            place.listeners.close()
            if place.state is State.WAITS:
                place.state = State.ENDED

    def _tell(self, word: bytes, places: Sequence[Place] | None = None) -> None:
        for place in self._places if places is None else places:
            if place.link is not None:
                words.send(place.link, word)

    def _kill(self) -> None:
        for place in self._places:
            if place.lives and place.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(place.pid, signal.SIGKILL)

    def _seconds(self) -> float | None:
        """Return the seconds until something is due."""
        drain_at = float("inf") if self._is_draining else self._drain_at
        due = [self._kill_at, drain_at] + [
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
    server.raise_file_limit()
    try:
        supervisor = Supervisor(settings, on_ready, clock)
    except OSError as error:
        reason = error.strerror or error
        raise StartupError(f"cannot start {settings.workers} workers: {reason}") from None
    return supervisor.run()
