"""The command ``oplogctl``: its groups, its errors and its exit codes."""

import logging
import os
import sys
from collections.abc import Sequence

import click
from click.shell_completion import shell_complete

from oplogc import __version__
from oplogc.ctl.commands.consumer import consumer
from oplogc.ctl.commands.lists import lease, namespace, namespaces
from oplogc.ctl.commands.pointer import pointer
from oplogc.ctl.commands.send import send
from oplogc.ctl.commands.txn import txn
from oplogc.ctl.options.connection import PREFIX, Failed
from oplogc.ctl.options.flags import VARIABLES, before_command
from oplogc.ctl.status.command import consumers, status
from oplogc.ctl.token.command import token
from oplogc.ctl.topic.command import topic
from oplogc.http.address import shown_text
from oplogc.terminal.options import source_of
from oplogc.terminal.output import EXIT_FAILED, EXIT_OK, EXIT_USAGE, ended_without_stdout
from oplogc.terminal.variables import unknown_variable
from oplogc.wire.errors import OplogError

PROGRAM = "oplogctl"
_COMPLETE = "_OPLOGCTL_COMPLETE"
_EPILOG = """\
\b
Values come from the flag, else from the variable, which is not set if it is
empty. An unknown variable that begins with OPLOGCTL_ is refused.

\b
Exit codes: 0 done, or ended by Ctrl-C, SIGTERM or a reader that closed the
pipe; 1 the agent refuses, is unreachable, not everything is published, or a
token is invalid; 2 a bad setting.

\b
Examples:
  oplogctl status
  oplogctl send update video/x1 --parent user/ada
  oplogctl consumers --url http://agent:8042
  oplogctl topic create orders --ttl 30d
  oplogctl topic publish orders '{"order": 7}' --key 7
  oplogctl topic publish orders - < orders.ndjson
  oplogctl topic peek orders
  oplogctl topic follow orders --from 10m --json | jq -r .payload
  oplogctl topic entries orders
  oplogctl consumer show search
  oplogctl txn list --state open
  oplogctl pointer list
  oplogctl token create --key app.key --read 'shop/*' --seconds 3600
"""


@click.group(
    PROGRAM,
    epilog=_EPILOG,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.version_option(__version__, prog_name=PROGRAM, message="%(prog)s %(version)s")
def command() -> None:
    """Operate an oplog agent over HTTP."""


for _command in (
    status, consumers, send, topic, consumer, txn, pointer, lease, namespace, token, namespaces,
):  # fmt: skip
    command.add_command(_command)
before_command(command)


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    try:
        code = _run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return EXIT_USAGE
    except click.UsageError as error:
        return _ended(EXIT_USAGE, _sentence(error))
    except (OplogError, Failed) as error:
        return _ended(EXIT_FAILED, str(error))
    except OSError as error:  # of stdout or stdin: others are handled elsewhere
        return ended_without_stdout(PROGRAM, error)
    except KeyboardInterrupt:
        return EXIT_FAILED


def _run(arguments: list[str]) -> int:
    if instruction := os.environ.get(_COMPLETE):
        return shell_complete(command, {}, PROGRAM, _COMPLETE, instruction)
    with command.make_context(PROGRAM, arguments, obj=os.environ) as context:
        if unknown := unknown_variable(os.environ, PREFIX, VARIABLES):
            raise click.UsageError(unknown)
        if sys.stdout is None:
            raise Failed("stdout is closed: there is nowhere to write to")
        # Line by line, also into a pipe: a reader sees a message when it comes. The type of stdout
        # has no `reconfigure`, its class has.
        sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
        logging.basicConfig(format=f"{PROGRAM}: %(message)s", level=logging.WARNING)
        logging.getLogger("oplogc").setLevel(logging.INFO)
        command.invoke(context)
    return EXIT_OK


def _ended(code: int, sentence: str) -> int:
    print(f"{PROGRAM}: {sentence}", file=sys.stderr)
    return code


def _sentence(error: click.UsageError) -> str:
    """Return click's error in one sentence with the name of the flag, and no secret."""
    if isinstance(error, click.BadParameter) and error.param is not None and error.ctx is not None:
        if isinstance(error, click.MissingParameter):
            return f"{source_of(error.param, error.ctx)}: is missing; see --help"
        return f"{source_of(error.param, error.ctx)}: {error.message}"
    if isinstance(error, click.BadOptionUsage) and "requires an argument" in error.message:
        return f"{error.option_name}: needs a value (--flag=VALUE if it begins with -)"
    text = error.format_message()
    if "unexpected extra argument" in text:
        return f"unknown argument {shown_text(text.rpartition('(')[2].rstrip(').'))}"
    if text[1:2].islower():  # not the name of a variable
        text = text[:1].lower() + text[1:]
    return text.rstrip(".")
