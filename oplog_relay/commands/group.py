"""The group of the subcommands."""

from oplog_kit.command.options import group
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

_ABOUT = "Move the rows of an outbox into topics and the oplog, in order per key."

command = group(PROGRAM, __version__, _ABOUT, _EPILOG, run, validate, status, skip, schema, pump)
