"""The group of the subcommands."""

from oplog_kit.command.options import group
from oplog_pipe.commands.adopt import adopt
from oplog_pipe.commands.copy import copy
from oplog_pipe.commands.log import log
from oplog_pipe.commands.offset import offset
from oplog_pipe.commands.run import run
from oplog_pipe.commands.spark import spark
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
  oplog-pipe spark -f pipe.yaml --checkpoint checkpoint
  oplog-pipe status -f pipe.yaml
  oplog-pipe log show 4711 -f pipe.yaml
  oplog-pipe offset ack search 4711 -f pipe.yaml
  oplog-pipe copy -f pipe.yaml
  oplog-pipe adopt search --from old/search -f pipe.yaml
"""

_ABOUT = "Follow logs, keep every message in a commit log, and write it to sinks."

command = group(
    PROGRAM, __version__, _ABOUT, _EPILOG, run, spark, validate, status, log, offset, copy, adopt
)
