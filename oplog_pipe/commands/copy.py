"""``oplog-pipe copy``: lets sources copy all objects again."""

import click

from oplog_pipe.commands.options import settings_option
from oplog_pipe.folder import operate
from oplog_pipe.model.settings import PipeSettings


@click.command()
@click.argument("sources", metavar="[SOURCE]...", nargs=-1)
@settings_option()
def copy(sources: tuple[str, ...], settings: PipeSettings) -> None:
    """Let sources copy all objects again at the next start.

    Without names: all sources. The pipe must be stopped. All sinks get the copy. Its end removes
    the objects that the copy did not bring.
    """
    for name in operate.copy_again(settings, sources):
        print(f"{name}: copies all objects at the next start")
