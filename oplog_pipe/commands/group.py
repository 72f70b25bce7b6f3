"""The group of the subcommands."""

import click

from oplog_pipe.commands.adopt import adopt
from oplog_pipe.commands.copy import copy
from oplog_pipe.commands.log import log
from oplog_pipe.commands.offset import offset
from oplog_pipe.commands.run import run
from oplog_pipe.commands.status import status
from oplog_pipe.commands.validate import validate
from oplog_pipe.model.exits import PROGRAM
from oplogc import __version__

_EPILOG = """\
\b
Exit codes: 0 done; 1 failed: a source refuses, the disk is full, the log is
damaged; 2 a wrong command line or a wrong setting; 4 a sink or a transform did
not take messages; 5 messages of a topic are gone.

\b
Examples:
  oplog-pipe validate -f pipe.yaml
  oplog-pipe run -f pipe.yaml
  oplog-pipe status -f pipe.yaml
  oplog-pipe log show 4711 -f pipe.yaml
  oplog-pipe offset ack search 4711 -f pipe.yaml
  oplog-pipe copy -f pipe.yaml
  oplog-pipe adopt search --from old/search -f pipe.yaml
"""


@click.group(
    PROGRAM,
    epilog=_EPILOG,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.version_option(__version__, prog_name=PROGRAM, message="%(prog)s %(version)s")
def command() -> None:
    """Follow logs, keep every message in a commit log, and write it to sinks."""


for each in (run, validate, status, log, offset, copy, adopt):
    command.add_command(each)
