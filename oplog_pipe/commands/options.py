"""Options of all subcommands."""

from functools import partial

from oplog_kit.command import options
from oplog_pipe.config import load

settings_option = partial(options.settings_option, load, "pipe")
