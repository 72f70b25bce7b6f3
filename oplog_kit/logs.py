"""Logging to stderr: lines for people, or one JSON object per line."""

import json
import logging
import sys
import time
from collections.abc import Sequence
from typing import Literal, TextIO

Format = Literal["text", "json"]
FORMATS: tuple[Format, ...] = ("text", "json")
LOGGERS = ("oplog_pipe", "oplog_relay")


def configure(
    fmt: Format,
    debug: bool,
    loggers: Sequence[str] = LOGGERS,
    *,
    traces: bool = False,
    worker: int | None = None,
) -> None:
    """Log to stderr: ``loggers`` from INFO or DEBUG on, everything else from WARNING on.

    ``traces``: log the traceback of an exception. Without it the message ends with the exception,
    and the traceback follows only with ``debug``. ``worker``: the number of this process among
    several, for each line. A second call replaces the first.
    """
    handler = _Handler(sys.stderr)
    handler.setFormatter(_Formatter(fmt, not traces, traces or debug, worker))
    root = logging.getLogger()
    for old in [each for each in root.handlers if isinstance(each, _Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    for name in loggers:
        logging.getLogger(name).setLevel(logging.DEBUG if debug else logging.INFO)


class _Handler(logging.StreamHandler[TextIO]):
    """Marks this module's handler among those of the root logger."""


class _Formatter(logging.Formatter):
    def __init__(self, fmt: Format, names_errors: bool, traces: bool, worker: int | None) -> None:
        super().__init__()
        self._worker = worker
        self._json = fmt == "json"
        self._names_errors = names_errors
        self._traces = traces

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        if self._names_errors and record.exc_info and (error := record.exc_info[1]) is not None:
            message += f": {type(error).__name__}: {error}"
        # logger.exception outside an except block sets exc_info to (None, None, None).
        parts = []
        if self._traces and record.exc_info and record.exc_info[0]:
            parts.append(self.formatException(record.exc_info))
        if record.stack_info:
            parts.append(self.formatStack(record.stack_info))
        time, trace = _utc(record.created), "\n".join(parts)
        if self._json:
            document = {
                "time": time,
                "level": record.levelname,
                "logger": record.name,
                **({} if self._worker is None else {"worker": self._worker}),
                "message": message,
            }
            return json.dumps({**document, "exception": trace} if trace else document)
        # Without escapes, a line break in a message could fake a log line.
        if not message.isprintable():
            message = "".join(c if c.isprintable() else repr(c)[1:-1] for c in message)
        worker = "" if self._worker is None else f" worker {self._worker}"
        line = f"{time} {record.levelname:<5} {record.name}{worker}: {message}"
        return f"{line}\n{trace}" if trace else line


def _utc(created: float) -> str:
    seconds, millis = divmod(int(created * 1000), 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{millis:03d}Z"
