"""Repeats calls after transient failures."""

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from oplog_kit.backoff import Backoff
from oplog_pipe.errors import PipeError, SinkError
from oplog_pipe.model.reasons import of_code

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 10.0

T = TypeVar("T")
logger = logging.getLogger("oplog_pipe")


@dataclass(frozen=True)
class RetryClock:
    """Time, as tests replace it. ``now``: seconds. ``pause``: wait for an event, at most seconds.

    ``jitter``: from 0 to 1.
    """

    now: Callable[[], float] = time.monotonic
    pause: Callable[[threading.Event, float], bool] = threading.Event.wait
    jitter: Callable[[], float] = random.random


class LeftError(Exception):
    """A stop request has ended the attempts. The cause is the failure of the last one."""


def outwait(name: str, seconds: float, leaving: threading.Event, clock: RetryClock) -> None:
    """Wait for what cut-off tasks of Spark may still write to a sink. Raises LeftError."""
    logger.info("sink %r: waiting %.0f s for what late tasks of Spark may write", name, seconds)
    clock.pause(leaving, seconds)
    if leaving.is_set():
        raise LeftError("stopped before late tasks of Spark had ended")


class Retry:
    """Repeats the calls of one sink. ``retry_for``: seconds since the first failure of a call.

    ``leaving``: a stop request; it ends a pause, and the attempt after it is the last one.
    """

    def __init__(
        self, name: str, retry_for: float, leaving: threading.Event, clock: RetryClock
    ) -> None:
        self._name = name
        self._retry_for = retry_for
        self._leaving = leaving
        self._clock = clock
        self.retries = 0
        self.error: str | None = None
        """The failure that is being tried again."""

    def __call__(self, call: Callable[[], T]) -> T:
        """Return the result of the first successful call.

        Pauses grow from 0.1 s to 10 s. Raises LeftError, and SinkError: ``transient`` after
        ``retry_for``. Other PipeErrors pass. Other exceptions are permanent, ``sys.exit`` too.
        """
        clock, backoff = self._clock, Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        give_up, failures = 0.0, 0
        while True:
            last = self._leaving.is_set()
            try:
                result = call()
            except SinkError as error:
                if not error.transient:
                    raise
                failure = error
            except PipeError:
                raise
            except (Exception, SystemExit) as error:
                raise SinkError(of_code(error)) from error
            else:
                self.error = None
                if failures:
                    logger.info("sink %r works again", self._name)
                return result
            self.error = str(failure)
            if last:
                raise LeftError(str(failure)) from failure
            now = clock.now()
            if not failures:
                give_up = now + self._retry_for
            if now >= give_up:
                raise failure
            failures += 1
            self.retries += 1
            wait = min(backoff.pause * (1 - clock.jitter() / 2), give_up - now)
            backoff.grow()
            if failures & (failures - 1) == 0:  # the first, second, fourth, eighth …
                logger.warning("sink %r: %s; trying again in %.1f s", self._name, failure, wait)
            clock.pause(self._leaving, wait)
