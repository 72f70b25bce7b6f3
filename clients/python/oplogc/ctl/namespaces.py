"""The command ``oplogctl namespaces``."""

import click

from oplogc.ctl.lines import namespace_json, namespace_lines
from oplogc.ctl.options import Connection, as_json, connected


@click.command()
@as_json
@connected(writes=False)
def namespaces(connection: Connection, as_json: bool) -> None:
    """List the namespaces that have topics, with the number of their topics."""
    with connection.topics() as topics:
        found = topics.namespaces()
    for line in map(namespace_json, found) if as_json else namespace_lines(found):
        print(line)
