"""``oplog-pipe adopt``: takes over the rows of another owner."""

import click

from oplog_kit.wording import counted
from oplog_pipe.commands.options import settings_option
from oplog_pipe.deliver.factory import build
from oplog_pipe.errors import ConfigError
from oplog_pipe.folder import operate
from oplog_pipe.folder.start import owner_of
from oplog_pipe.model.settings import PipeSettings
from oplog_pipe.sinks.base import Owned


@click.command()
@click.argument("name", metavar="SINK")
@click.option(
    "--from", "former",
    required=True, metavar="OWNER",
    help="Present owner of the rows, PIPE/SINK, as the refusal names it.",
)  # fmt: skip
@settings_option()
def adopt(name: str, former: str, settings: PipeSettings) -> None:
    """Make all rows of another owner rows of this sink.

    For a pipe or a sink with a new name, or after the folder of a pipe without a name was lost.
    Both pipes must be stopped. If the former owner goes on, it stops at its next change of such a
    row. PostgreSQL changes all rows or none; after a failure elsewhere, run the command again.
    """
    found = [each for each in settings.sinks if each.name == name]
    if not found:
        known = ", ".join(each.name for each in settings.sinks)
        raise ConfigError(f"SINK: there is no sink {name!r} in the settings; known: {known}")
    sink = build(found[0], settings.root)
    if not isinstance(sink, Owned):
        raise ConfigError(f"SINK: {name!r} has no rows with owners: its type is {found[0].type}")
    with operate.locked_log(settings) as log:
        owner = owner_of(settings, found[0], log)
        if former == str(owner):
            raise ConfigError(f"--from: {former} is this sink itself")
        sink.own(owner)
        try:
            sink.open()
            number = sink.adopt(former)
        finally:
            sink.close()
    print(f"{name}: took over {counted(number, 'row')} of {former}; they belong to {owner}")
