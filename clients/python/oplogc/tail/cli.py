"""The command ``oplog-tail``: follow an agent in the terminal."""

import asyncio
import json
import logging
import os
import sys
from collections.abc import Sequence
from functools import partial
from urllib.parse import urlsplit

from oplogc.follow.consumer import Consumer
from oplogc.http.answers import printable
from oplogc.tail.command import PROGRAM, parse, refuse
from oplogc.tail.settings import TailSettings
from oplogc.terminal.output import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_USAGE,
    as_time,
    ended_without_stdout,
    follow,
)
from oplogc.wire.errors import OplogError, RefusedError
from oplogc.wire.events import Event, Operation, Reset

__all__ = ["EXIT_FAILED", "EXIT_OK", "EXIT_USAGE", "main"]

_COLOURS = {"insert": "32", "update": "33", "delete": "31", "reset": "35", "live": "35"}
_DIM = "2"
_NO_TIME = " " * len("2026-01-31T12:00:00.000Z")


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code. Raise SystemExit for --help, --version and bad settings."""
    try:
        settings = parse(sys.argv[1:] if argv is None else argv, os.environ)
    except OSError as error:  # of stdout, while --help, --version or a completion prints
        return ended_without_stdout(PROGRAM, error)
    if sys.stdout is None:
        return _failed("stdout is closed: there is nowhere to write to")
    level = logging.ERROR if settings.quiet else logging.WARNING
    logging.basicConfig(format="oplog-tail: %(message)s", level=level)
    logging.getLogger("oplogc").setLevel(logging.ERROR if settings.quiet else logging.INFO)
    try:
        consumer = Consumer(
            settings.url,
            types=settings.types,
            parents=settings.parents,
            ids=settings.ids,
            events=settings.events,
            shard=settings.shard,
            start=settings.start,
            name=settings.name,
            state_file=settings.state_file,
            password=settings.password,
            token=settings.token_file,
            proxy=settings.proxy,
        )
    except (ValueError, OSError) as error:
        refuse(str(error))
    except OplogError as error:
        return _failed(str(error))
    colour = _wants_colour(settings.color)
    line = _as_json if settings.json else partial(_line, colour=colour)
    # Line by line, also into a pipe: a reader sees an operation when it happens. The type of stdout
    # has no `reconfigure`, its class has.
    sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    try:
        asyncio.run(follow(consumer, lambda each: print(line(each)), Operation, settings.count))
    except RefusedError as error:
        return _failed(_password_problem(settings) if error.status == 401 else str(error))
    except OplogError as error:
        return _failed(str(error))
    except OSError as error:  # of stdout, for example a full disk: others are handled elsewhere
        return ended_without_stdout(PROGRAM, error)
    except KeyboardInterrupt:  # on systems whose event loop handles no signals
        pass
    return EXIT_OK


def _failed(sentence: str) -> int:
    print(f"oplog-tail: {sentence}", file=sys.stderr)
    return EXIT_FAILED


def _password_problem(settings: TailSettings) -> str:
    if settings.password or urlsplit(settings.url).password:
        return "wrong password: the agent refuses it (HTTP 401)"
    return "the agent needs a password: give --password-file or OPLOG_TAIL_PASSWORD (HTTP 401)"


def _line(event: Event, colour: bool) -> str:
    """Format an event for people: time, event, type/id, parents, ref, and the id in brackets.

    ``reset`` and ``live`` have no time. ``reset`` has no id from which a consumer could resume.
    """

    def paint(text: str, code: str = _DIM) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if colour else text

    name = paint(f"{event.event:<6}", _COLOURS[event.event])
    if isinstance(event, Reset):
        return f"{_NO_TIME} {name}".rstrip()
    parts = [_NO_TIME, name]
    if isinstance(event, Operation):
        parts = [paint(as_time(event.timestamp)), name, printable(event.key)]
        if event.parents:
            parts.append(paint(f"in {printable(', '.join(event.parents))}"))
        if event.ref:
            parts.append(paint(printable(event.ref)))
    return " ".join([*parts, paint(f"[{event.event_id}]")])


def _as_json(event: Event) -> str:
    shown: dict[str, object] = {"event_id": event.event_id, "event": event.event}
    if isinstance(event, Operation):
        shown |= {
            "timestamp": as_time(event.timestamp),
            "parents": event.parents,
            "type": event.type,
            "id": event.id,
        }
        if event.ref is not None:
            shown["ref"] = event.ref
    return json.dumps(shown)


def _wants_colour(choice: str) -> bool:
    if choice == "auto":
        return (
            sys.stdout.isatty()
            and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM") != "dumb"
        )
    return choice == "always"
