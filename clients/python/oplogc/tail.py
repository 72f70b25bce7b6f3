"""The command ``oplog-tail``: follow an agent in the terminal."""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import re
import signal
import stat
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from oplogc import __version__
from oplogc.address import shown_text
from oplogc.answers import printable
from oplogc.consumer import Consumer
from oplogc.errors import OplogError
from oplogc.events import Event, Operation

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2

_EPILOG = """\
It reconnects by itself and goes on where it was. Ctrl-C, SIGTERM, the end of --count and a reader that closes the pipe
end it with exit code 0. 1: the agent refuses (a wrong password), or the state file cannot be used. 2: a bad argument.
Notices go to stderr, operations to stdout, one a line.

TIME is a duration before now (90s, 10m, 12h, 7d), RFC 3339 (2026-01-31T12:00:00Z) or milliseconds since 1970.
With --json a line is an object: event_id, event and, for an operation, timestamp, parents, type, id and ref if sent.

examples:
  oplog-tail
  oplog-tail http://agent:8042 --types video,user --since 10m
  oplog-tail --replicate --json | jq -r .id
  oplog-tail --state-file videos.state --types video --count 100
"""
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_COLOURS = {"insert": "32", "update": "33", "delete": "31", "reset": "35", "live": "35"}
_DIM = "2"


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code. Raises SystemExit for --help, --version and bad arguments."""
    parser = _parser()
    args = parser.parse_args(argv)
    if sys.stdout is None:
        return _failed("stdout is closed: there is nowhere to write to")
    logging.basicConfig(
        format="oplog-tail: %(message)s", level=logging.ERROR if args.quiet else logging.WARNING
    )
    logging.getLogger("oplogc").setLevel(logging.ERROR if args.quiet else logging.INFO)
    try:
        consumer = Consumer(
            args.url,
            types=_names(args.types),
            parents=_names(args.parents),
            start=args.start,
            state_file=args.state_file,
            password=_password(args),
            proxy=args.proxy,
        )
    except (ValueError, OSError) as error:
        parser.error(str(error))
    except OplogError as error:
        return _failed(str(error))
    show = _as_json if args.json else _Lines(_wants_colour(args.color))
    try:
        asyncio.run(_follow(consumer, show, args.count))
    except BrokenPipeError:
        _forget_stdout()
    except OplogError as error:
        return _failed(str(error))
    except OSError as error:  # of stdout, a full disk for example: those of the network and the state file are caught
        _forget_stdout()
        return _failed(f"cannot write to stdout: {error.strerror}")
    except KeyboardInterrupt:  # where signals cannot be handled in the loop
        pass
    return EXIT_OK


def _failed(sentence: str) -> int:
    print(f"oplog-tail: {sentence}", file=sys.stderr)
    return EXIT_FAILED


async def _follow(consumer: Consumer, show: Callable[[Event], str], count: int | None) -> None:
    # Line by line, also into a pipe: who reads it wants to see an operation when it happens.
    sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    left = count
    _stop_when_asked(consumer)
    async with consumer:
        async for event in consumer:
            print(show(event))
            consumer.ack(event)
            if left is not None and isinstance(event, Operation):
                left -= 1
                if not left:
                    return


def _stop_when_asked(consumer: Consumer) -> None:
    """Stop the consumer at a signal, and when the reader of a pipe has gone although nothing is being written."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(NotImplementedError):  # not on Windows
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, consumer.stop)
    with contextlib.suppress(OSError, ValueError, NotImplementedError):
        mode = os.fstat(sys.stdout.fileno()).st_mode
        if stat.S_ISFIFO(mode):
            loop.add_reader(sys.stdout.fileno(), consumer.stop)


def _forget_stdout() -> None:
    """Keep Python from complaining at its end that it cannot flush."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Lines:
    """Events as lines for people: time, event, type/id, parents."""

    def __init__(self, colour: bool) -> None:
        self._colour = colour

    def __call__(self, event: Event) -> str:
        name = self._paint(f"{event.event:<6}", _COLOURS[event.event])
        if not isinstance(event, Operation):
            return f"{self._paint(event.event_id, _DIM)} {name}"
        parents = (
            f" {self._paint('in ' + printable(', '.join(event.parents)), _DIM)}"
            if event.parents
            else ""
        )
        ref = f" {self._paint(printable(event.ref), _DIM)}" if event.ref else ""
        return f"{self._paint(_time(event.timestamp), _DIM)} {name} {printable(event.key)}{parents}{ref}"

    def _paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour else text


def _as_json(event: Event) -> str:
    shown: dict[str, object] = {"event_id": event.event_id, "event": event.event}
    if isinstance(event, Operation):
        shown |= {
            "timestamp": _time(event.timestamp),
            "parents": event.parents,
            "type": event.type,
            "id": event.id,
        }
        if event.ref is not None:
            shown["ref"] = event.ref
    return json.dumps(shown)


def _time(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def start_time(text: str) -> datetime:
    """When ``--since`` means. Raises argparse.ArgumentTypeError."""
    text = text.strip()
    try:
        if match := re.fullmatch(r"([0-9]{1,9})([smhd])", text):
            return datetime.now(UTC) - timedelta(seconds=int(match[1]) * _SECONDS[match[2]])
        if re.fullmatch(r"[0-9]{1,13}", text):
            return datetime.fromtimestamp(int(text) / 1000, UTC)
        time = datetime.fromisoformat(text.upper())
        if time.tzinfo is not None:
            return time
    except (ValueError, OverflowError):
        pass
    raise argparse.ArgumentTypeError(
        f"{text!r} is no time: a duration such as 10m, RFC 3339 such as 2026-01-31T12:00:00Z, or milliseconds"
    )


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of at least 1")
    return int(text)


def _names(given: Sequence[str]) -> list[str]:
    """One value is a comma-separated list; of several each stands for itself, so that it can hold a comma."""
    return given[0].split(",") if len(given) == 1 else list(given)


def _password(args: argparse.Namespace) -> str | None:
    if args.password_file is not None:
        return Path(args.password_file).read_text().removesuffix("\n").removesuffix("\r")
    password: str | None = args.password or os.environ.get("OPLOG_PASSWORD")
    return password


def _wants_colour(choice: str) -> bool:
    if choice == "auto":
        return (
            sys.stdout.isatty()
            and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM") != "dumb"
        )
    return choice == "always"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="oplog-tail",
        description="Follow the operations of an oplog agent.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    url = os.environ.get("OPLOG_URL") or "http://localhost:8042"
    default = shown_text(url).replace("%", "%%")
    add(
        "url",
        metavar="URL",
        nargs="?",
        default=url,
        help=f"The agent. Variable: OPLOG_URL. Default: {default}.",
    )
    add(
        "-t",
        "--types",
        action="append",
        default=[],
        metavar="TYPE[,TYPE...]",
        help="Only these types. When repeated, a value is one name and may hold a comma.",
    )
    add(
        "-p",
        "--parents",
        action="append",
        default=[],
        metavar="PARENT[,PARENT...]",
        help="Only operations with one of these parents; as --types.",
    )
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "--since",
        dest="start",
        type=start_time,
        metavar="TIME",
        help="Begin with the objects changed since then, each once; then live. Not given: with the next operation.",
    )
    start.add_argument(
        "--replicate",
        dest="start",
        action="store_const",
        const="0",
        help="Begin with a copy of all objects: reset, an insert for each, live.",
    )
    add(
        "--state-file",
        metavar="PATH",
        help="Keep the position here and go on from it next time; what it holds comes before --since and --replicate.",
    )
    add(
        "-n",
        "--count",
        type=_count,
        metavar="N",
        help="End after N operations; reset and live do not count.",
    )
    add("--json", action="store_true", help="One JSON object a line.")
    add(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="Default: auto, in a terminal unless NO_COLOR is set.",
    )
    secret = parser.add_mutually_exclusive_group()
    secret.add_argument("--password", help="The agent's password. Variable: OPLOG_PASSWORD.")
    secret.add_argument("--password-file", metavar="PATH", help="A file that holds it.")
    add(
        "--proxy",
        metavar="URL",
        help="An HTTP proxy. Not given: what HTTP_PROXY and HTTPS_PROXY say.",
    )
    add("-q", "--quiet", action="store_true", help="No notices about connections.")
    add("--version", action="version", version=f"oplog-tail {__version__}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
