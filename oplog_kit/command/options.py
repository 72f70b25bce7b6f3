"""What the groups of commands share: their options, their answers, and the group."""

import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import click

from oplog_kit import logs
from oplog_kit.command.run import EXIT_FAILED, EXIT_OK
from oplog_kit.command.value import Value
from oplog_kit.listen import listen_address
from oplogc.http.answers import printable

# Seconds to wait for one answer of an agent.
PATIENCE = 10.0

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def settings_option(
    load: Callable[[Path], Any], program: str, *, required: bool = True
) -> Decorator:
    """Return the option ``-f``. The command gets ``settings``. Raises the errors of ``load``."""
    return click.option(
        "-f", "--file", "settings",
        type=Value("PATH", lambda path: load(Path(path))), required=required, metavar="PATH",
        help=f"File with the settings of the {program}.",
    )  # fmt: skip


def listen_option(flag: str, help: str) -> Decorator:
    """Return an option for ``HOST:PORT``."""

    def checked(text: str) -> str:
        listen_address(text)
        return text

    return click.option(flag, type=Value("HOST:PORT", checked), help=help)


def log_options() -> Decorator:
    """Return the options of a command that logs. The command gets ``log_format`` and ``debug``."""
    log_format = click.option(
        "--log-format",
        type=click.Choice(logs.FORMATS),
        default="text",
        show_default=True,
        help="Format of the log, which goes to stderr.",
    )
    debug = click.option("--debug", is_flag=True, help="Log more, and tracebacks of failures.")
    return lambda command: log_format(debug(command))


def group(
    program: str, version: str, about: str, epilog: str, *commands: click.Command
) -> click.Group:
    """Return the command of a program with subcommands."""
    made = click.Group(
        program,
        help=about,
        epilog=epilog,
        commands=commands,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    )
    click.version_option(version, prog_name=program, message="%(prog)s %(version)s")(made)
    return made


async def tell(program: str, answers: AsyncIterator[tuple[str, str]]) -> int:
    """Print each answer as a comment, each problem to stderr. Return the exit code.

    ``answers``: subjects with sentences. A problem has no subject.
    """
    code = EXIT_OK
    async for subject, sentence in answers:
        if subject:
            print(f"# {printable(subject)}: {printable(sentence)}")
        else:
            print(f"{program}: {printable(sentence)}", file=sys.stderr)
            code = EXIT_FAILED
    return code
