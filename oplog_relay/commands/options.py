"""Options and values of all subcommands."""

from functools import partial

from oplog_kit.command import options
from oplog_kit.command.convert import count
from oplog_kit.command.value import Value
from oplog_relay.config.file import load

# Up to the largest of a bigint.
POSITIVE = Value("N", count(1, 2**63 - 1))

settings_option = partial(options.settings_option, load, "relay")
