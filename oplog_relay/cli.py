"""The command ``oplog-relay``: its errors and its exit codes."""

import logging
import os
import sys
from collections.abc import Sequence

import click
from click.shell_completion import shell_complete

from oplog_relay.errors import ConfigError, RelayError
from oplog_relay.exits import EXIT_FAILED, EXIT_OK, EXIT_USAGE, PROGRAM

_COMPLETE = "_OPLOG_RELAY_COMPLETE"


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code."""
    try:
        from oplog_relay.commands.group import command
    except ImportError as error:
        return _ended(
            EXIT_FAILED,
            f"{error.name} is missing; in the checkout of oplog, run:"
            " pip install -c constraints.txt '.[relay]' ./clients/python",
        )
    arguments = sys.argv[1:] if argv is None else list(argv)
    # The errors of a command that does not log are told once, by ``_ended``.
    for name in ("oplog_relay", "psycopg"):
        logging.getLogger(name).addHandler(logging.NullHandler())
    try:
        if instruction := os.environ.get(_COMPLETE):
            return shell_complete(command, {}, PROGRAM, _COMPLETE, instruction)
        for stream in (sys.stdout, sys.stderr):
            if stream is None:
                return EXIT_FAILED
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        code = command.main(arguments, PROGRAM, standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else EXIT_OK
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return EXIT_USAGE
    except click.UsageError as error:
        return _ended(EXIT_USAGE, _sentence(error))
    except ConfigError as error:
        return _ended(EXIT_USAGE, str(error))
    except BrokenPipeError:  # the reader has seen enough
        # Otherwise Python would fail at exit because it cannot flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except (RelayError, OSError) as error:
        return _ended(EXIT_FAILED, str(error))
    except (click.Abort, KeyboardInterrupt):
        return EXIT_FAILED
    except Exception as error:
        if sys.flags.dev_mode:  # python -X dev
            raise
        return _ended(EXIT_FAILED, f"a defect of this program: {type(error).__name__}: {error}")


def _ended(code: int, message: str) -> int:
    for line in message.splitlines():
        print(f"{PROGRAM}: {line}", file=sys.stderr)
    return code


def _sentence(error: click.UsageError) -> str:
    """Return click's error in one sentence that names the flag."""
    if isinstance(error, click.MissingParameter) and error.param is not None:
        return f"{_name(error.param)}: is missing; see --help"
    if isinstance(error, click.BadParameter) and error.param is not None:
        return f"{_name(error.param)}: {error.message.rstrip('.')}"
    text = error.format_message()
    return (text if text[:1] == "-" else text[:1].lower() + text[1:]).rstrip(".")


def _name(param: click.Parameter) -> str:
    return param.human_readable_name if isinstance(param, click.Argument) else param.opts[0]
