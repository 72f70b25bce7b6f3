"""The subcommands of ``oplogctl namespace``."""

import click

from oplogc.ctl.options.connection import Connection
from oplogc.ctl.options.flags import as_json, connected
from oplogc.ctl.output.lines import namespace_json, namespace_lines


@click.group(no_args_is_help=True)
def namespace() -> None:
    """Look at the namespaces of topics."""


@namespace.command("list")
@as_json
@connected(writes=False)
def list_(connection: Connection, as_json: bool) -> None:
    """List the namespaces that have topics, with the number of their topics."""
    with connection.topics() as topics:
        found = topics.namespaces()
    for line in map(namespace_json, found) if as_json else namespace_lines(found):
        print(line)


# The same under its earlier name.
namespaces = click.Command("namespaces", callback=list_.callback, params=list_.params, hidden=True)
