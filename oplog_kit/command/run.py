"""Runs a command: its errors as sentences, and its exit codes."""

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module

import click
from click.shell_completion import shell_complete

from oplog_kit.errors import ConfigError, ProgramError

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2


def run_command(
    program: str,
    module: str,
    argv: Sequence[str] | None,
    *,
    extra: str,
    loggers: Sequence[str],
    exits: Mapping[type[Exception], int],
) -> int:
    """Run the ``command`` of a module and return its exit code.

    - ``extra``: named if the module cannot be imported.
    - ``loggers``: they say nothing unless the command logs.
    - ``exits``: exit codes of errors other than ConfigError (2) and ProgramError (1).
    """
    try:
        command: click.Command = import_module(module).command
    except ImportError as error:
        return _ended(
            program,
            EXIT_FAILED,
            f"{error.name} is missing; in the checkout of oplog, run:"
            f" pip install -c constraints.txt '.[{extra}]' ./clients/python",
        )
    arguments = sys.argv[1:] if argv is None else list(argv)
    # The errors of a command that does not log are printed once, by ``_ended``.
    for name in loggers:
        logging.getLogger(name).addHandler(logging.NullHandler())
    complete = f"_{program.upper().replace('-', '_')}_COMPLETE"
    try:
        if instruction := os.environ.get(complete):
            return shell_complete(command, {}, program, complete, instruction)
        for stream in (sys.stdout, sys.stderr):
            if stream is None:
                return EXIT_FAILED
            # The type of the streams has no `reconfigure`, their class has.
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        code = command.main(arguments, program, standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else EXIT_OK
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return EXIT_USAGE
    except click.UsageError as error:
        return _ended(program, EXIT_USAGE, _sentence(error))
    except BrokenPipeError:  # the reader has seen enough
        # Otherwise Python would fail at exit because it cannot flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except OSError as error:
        return _ended(program, EXIT_FAILED, str(error))
    except (click.Abort, KeyboardInterrupt):
        return EXIT_FAILED
    except ProgramError as error:
        codes = {**exits, ConfigError: EXIT_USAGE, ProgramError: EXIT_FAILED}
        code = next(code for kind, code in codes.items() if isinstance(error, kind))
        return _ended(program, code, str(error))
    except Exception as error:
        if sys.flags.dev_mode:  # python -X dev
            raise
        defect = f"a defect of this program: {type(error).__name__}: {error}"
        return _ended(program, EXIT_FAILED, defect)


def _ended(program: str, code: int, message: str) -> int:
    for line in message.splitlines():
        print(f"{program}: {line}", file=sys.stderr)
    return code


def _sentence(error: click.UsageError) -> str:
    """Return click's error in one sentence with the flag."""
    if isinstance(error, click.MissingParameter) and error.param is not None:
        return f"{_name(error.param)}: is missing; see --help"
    if isinstance(error, click.BadParameter) and error.param is not None:
        return f"{_name(error.param)}: {error.message.rstrip('.')}"
    text = error.format_message()
    return (text if text[:1] == "-" else text[:1].lower() + text[1:]).rstrip(".")


def _name(param: click.Parameter) -> str:
    return param.human_readable_name if isinstance(param, click.Argument) else param.opts[0]
