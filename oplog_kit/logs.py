"""Logging to stderr, in the format of ``oplogd``."""

import json
import logging
import sys
import time
from typing import Literal

Format = Literal["text", "json"]
FORMATS: tuple[Format, ...] = ("text", "json")
LOGGERS = ("oplog_pipe", "oplog_relay")


def configure(fmt: Format, debug: bool) -> None:
    """Log to stderr: LOGGERS from INFO or DEBUG on, everything else from WARNING on.

    A traceback is logged if ``debug`` is set; else an exception is one line.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter(debug) if fmt == "json" else _TextFormatter(debug))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.DEBUG if debug else logging.INFO)


class _Formatter(logging.Formatter):
    def __init__(self, debug: bool) -> None:
        super().__init__()
        self._debug = debug

    def told(self, record: logging.LogRecord) -> str:
        """Return the message, and the exception in one line."""
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return record.getMessage()
        return f"{record.getMessage()}: {type(error).__name__}: {error}"

    def trace(self, record: logging.LogRecord) -> str:
        if record.exc_info and record.exc_info[0] is not None and self._debug:
            return self.formatException(record.exc_info)
        return ""


class _TextFormatter(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        # Without escapes, a line break in a message could fake a log line.
        message = self.told(record)
        if not message.isprintable():
            message = "".join(c if c.isprintable() else repr(c)[1:-1] for c in message)
        line = f"{_utc(record.created)} {record.levelname:<5} {record.name}: {message}"
        trace = self.trace(record)
        return f"{line}\n{trace}" if trace else line


class _JsonFormatter(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _utc(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": self.told(record),
        }
        if trace := self.trace(record):
            line["exception"] = trace
        return json.dumps(line)


def _utc(created: float) -> str:
    seconds, millis = divmod(int(created * 1000), 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{millis:03d}Z"
