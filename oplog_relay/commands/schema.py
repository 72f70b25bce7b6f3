"""``oplog-relay schema``: the statements that create an outbox table."""

import dataclasses

import click

from oplog_relay.commands.options import settings_option
from oplog_relay.db.schema import ddl
from oplog_relay.db.url import kinds
from oplog_relay.model.settings import RelaySettings, Table


@click.command()
@click.argument("database", type=click.Choice([*kinds()]))
@settings_option(required=False)
@click.option("--table", metavar="NAME", help="Name of the table instead of that in the file.")
def schema(database: str, settings: RelaySettings | None, table: str | None) -> None:
    """Print the statements that create an outbox table.

    With -f the table and its columns have the names of the file, else those of the default.
    """
    names = Table() if settings is None else settings.database.table
    if table is not None:
        names = dataclasses.replace(names, name=table)
    click.echo(ddl(database, names), nl=False)
