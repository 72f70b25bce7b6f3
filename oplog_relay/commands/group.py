"""The group of the subcommands."""

import click

from oplog_relay.commands.pump import pump
from oplog_relay.commands.run import run
from oplog_relay.commands.schema import schema
from oplog_relay.commands.skip import skip
from oplog_relay.commands.status import status
from oplog_relay.commands.validate import validate
from oplog_relay.model.exits import PROGRAM
from oplogc import __version__

_EPILOG = """\
\b
Exit codes: 0 done; 1 failed, or `status` or `validate` has found a problem;
2 a wrong command line or a wrong setting.

\b
Examples:
  oplog-relay schema postgres | psql app
  oplog-relay validate -f relay.yaml
  oplog-relay run -f relay.yaml
  oplog-relay status -f relay.yaml
  oplog-relay skip 4711 -f relay.yaml
"""


@click.group(
    PROGRAM,
    epilog=_EPILOG,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.version_option(__version__, prog_name=PROGRAM, message="%(prog)s %(version)s")
def command() -> None:
    """Move the rows of an outbox into topics and the oplog, in order per key."""


for each in (run, validate, status, skip, schema, pump):
    command.add_command(each)
