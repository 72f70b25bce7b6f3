"""The progress of a pipe: lines of its log, or one changing line of a terminal."""

import asyncio
import logging
import shutil
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from oplog_kit.units import rough_duration
from oplog_pipe.model.status import PipeStatus, SinkStatus, SourceStatus

# Seconds between two lines of the log, and between two states of the terminal's line.
LOG_INTERVAL = 5.0
TERMINAL_INTERVAL = 1.0
_ERASE = "\r\x1b[K"
logger = logging.getLogger("oplog_pipe")


class ProgressMeter:
    """Compares a state of a pipe with the one before."""

    def __init__(self, status: PipeStatus, now: float) -> None:
        self._before = status
        self._at = now

    def read(self, status: PipeStatus, now: float) -> tuple[str, bool]:
        """Return the progress as one line, and whether there is something to tell.

        ``now``: seconds of a monotonic clock.
        """
        before, self._before = self._before, status
        passed, self._at = max(now - self._at, 0.001), now
        sources = {each.name: each for each in before.sources}
        sinks = {each.name: each for each in before.sinks}
        received = sum(each.received for each in status.sources)
        received -= sum(each.received for each in before.sources)
        rate = f"received {received / passed:,.1f} messages per second"
        parts = [rate] if status.sources else []
        is_busy = received > 0
        for sink in status.sinks:
            done = _done(sink) - (_done(sinks[sink.name]) if sink.name in sinks else 0)
            parts.append(_sink(sink, done / passed))
            is_busy = is_busy or done > 0 or sink.lag > 0
        for source in status.sources:
            if source.phase == "copy":
                known = sources.get(source.name, source)
                parts.append(_copy(source, (source.copied - known.copied) / passed))
                is_busy = True
        return "; ".join(parts), is_busy


def _done(sink: SinkStatus) -> int:
    return sink.written + sink.filtered + sink.dead


def _sink(sink: SinkStatus, rate: float) -> str:
    phase = {"recovery": "recovery, ", "stopped": "stopped, "}.get(sink.phase, "")
    age = f" ({rough_duration(sink.lag_seconds)})" if sink.lag else ""
    return f"{sink.name}: {phase}{rate:,.1f} per second, lag {sink.lag:,}{age}"


def _copy(source: SourceStatus, rate: float) -> str:
    line = f"copy of {source.name}: {source.copied:,}"
    if source.copy_total is None:
        return line
    line += f" of {source.copy_total:,}"
    rest = source.copy_total - source.copied
    if rest > 0 and rate > 0:
        line += f", {rough_duration(rest / rate)} left"
    return line


class TerminalLine:
    """The last line of a terminal, which is written again and again."""

    def __init__(self, stream: TextIO, columns: Callable[[], int] | None = None) -> None:
        self._stream = stream
        self._columns = columns or (lambda: shutil.get_terminal_size().columns)
        self._lock = threading.Lock()
        self._text = ""

    def show(self, text: str) -> None:
        with self._lock:
            self._text = text[: max(self._columns() - 1, 0)]
            self._stream.write(_ERASE + self._text)
            self._stream.flush()

    def erase(self) -> None:
        with self._lock:
            if self._text:
                self._text = ""
                self._stream.write(_ERASE)
                self._stream.flush()

    @contextmanager
    def below(self, handlers: list[logging.Handler]) -> Iterator[None]:
        """Keep the line below the lines of these handlers. Erase it at the end."""

        def before(record: logging.LogRecord) -> bool:
            self.erase()
            return True

        for each in handlers:
            each.addFilter(before)
        try:
            yield
        finally:
            for each in handlers:
                each.removeFilter(before)
            self.erase()


async def show_progress(
    status: Callable[[], PipeStatus],
    terminal: TextIO | None = None,
    *,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Show the progress until cancelled: in the log, or on a terminal.

    The log gets no line while there is nothing to tell. ``pause``: waits these seconds.
    """
    meter = ProgressMeter(status(), clock())
    if terminal is None:
        while True:
            await pause(LOG_INTERVAL)
            text, is_busy = meter.read(status(), clock())
            if is_busy:
                logger.info("%s", text)
    line = TerminalLine(terminal)
    with line.below(logging.getLogger().handlers[:]):
        while True:
            await pause(TERMINAL_INTERVAL)
            line.show(meter.read(status(), clock())[0])
