"""The subcommands of ``oplogctl lease`` and ``oplogctl namespace``."""

import click

from oplogc.ctl.options.connection import Connection
from oplogc.ctl.options.flags import as_json, connected
from oplogc.ctl.output.lines import lease_lines, namespace_lines, row_json


@click.group(no_args_is_help=True)
def lease() -> None:
    """Look at leases, by which one of several processes leads."""


@lease.command("list")
@as_json
@connected(writes=False)
def list_leases(connection: Connection, as_json: bool) -> None:
    """List all leases that were ever held, with holder, term and time left."""
    with connection.topics() as topics:
        found = topics.leases()
    for line in map(row_json, found) if as_json else lease_lines(found):
        print(line)


@click.group(no_args_is_help=True)
def namespace() -> None:
    """Look at the namespaces of topics."""


@namespace.command("list")
@as_json
@connected(writes=False)
def list_namespaces(connection: Connection, as_json: bool) -> None:
    """List the namespaces that have topics, with the number of their topics."""
    with connection.topics() as topics:
        found = topics.namespaces()
    for line in map(row_json, found) if as_json else namespace_lines(found):
        print(line)


# The same under its earlier name.
namespaces = click.Command(
    "namespaces", callback=list_namespaces.callback, params=list_namespaces.params, hidden=True
)
