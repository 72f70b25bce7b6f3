"""``oplog-relay skip``: deletes rows that an agent refuses."""

import sys

import click

from oplog_kit.units import rough_duration
from oplog_kit.wording import counted
from oplog_relay.commands.options import POSITIVE, settings_option
from oplog_relay.db.operated import OperatedRow, OperatedTable
from oplog_relay.model.exits import EXIT_FAILED, EXIT_OK
from oplog_relay.model.row import shown
from oplog_relay.model.settings import RelaySettings
from oplogc.http.answers import printable


@click.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True, type=POSITIVE)
@settings_option()
@click.option("--show-value", is_flag=True, help="Print the values, too.")
@click.option("--yes", is_flag=True, help="Delete without a question. Needed without a terminal.")
def skip(ids: tuple[int, ...], settings: RelaySettings, show_value: bool, yes: bool) -> int:
    """Delete rows from the outbox, so that the rows behind them go on.

    For rows that an agent refuses; `status` and the log of the relay name their ids. The row is
    printed before. A deleted row reaches no consumer. The leader notices it at its next attempt.
    """
    ids = tuple(dict.fromkeys(ids))
    with OperatedTable(settings.database) as table:
        found = table.find(ids)
        for row in found:
            print("\n".join(map(printable, _lines(row, show_value))))
        present = {row.id for row in found}
        missing = [id_ for id_ in ids if id_ not in present]
        if found and not yes:
            if not sys.stdin.isatty():
                raise click.UsageError("give --yes: there is no terminal to ask at")
            click.confirm(f"Delete {counted(len(found), 'row')}?", abort=True)
        deleted = [row.id for row in found if table.delete(row)]
    name = settings.database.table.name
    for id_ in deleted:
        print(f"row {id_} is deleted")
    for id_ in missing:
        print(f"oplog-relay: there is no row {id_} in {name}", file=sys.stderr)
    for id_ in sorted(present - {*deleted}):
        print(f"oplog-relay: row {id_} is gone, or is not what it was", file=sys.stderr)
    if deleted:
        longest = rough_duration(settings.limits.blocked_backoff[1])
        print(f"A blocked key goes on at the relay's next attempt, within {longest}.")
    return EXIT_OK if len(deleted) == len(ids) else EXIT_FAILED


def _lines(row: OperatedRow, show_value: bool) -> list[str]:
    size = "null" if row.value is None else counted(len(row.value), "character")
    names = f"topic {shown(row.topic)}, key {shown(row.key)}"
    lines = [f"row {row.id}: {names}, {row.create_time}, value {size}"]
    return lines if row.value is None or not show_value else [*lines, shown(row.value)]
