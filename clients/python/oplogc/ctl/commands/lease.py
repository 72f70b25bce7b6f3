"""The subcommands of ``oplogctl lease``."""

import click

from oplogc.ctl.options.connection import Connection
from oplogc.ctl.options.flags import as_json, connected
from oplogc.ctl.output.lines import lease_json, lease_lines


@click.group(no_args_is_help=True)
def lease() -> None:
    """Look at leases, by which one of several processes leads."""


@lease.command("list")
@as_json
@connected(writes=False)
def list_(connection: Connection, as_json: bool) -> None:
    """List all leases that were ever held, with holder, term and time left."""
    with connection.topics() as topics:
        found = topics.leases()
    for line in map(lease_json, found) if as_json else lease_lines(found):
        print(line)
