"""``oplog-relay run``: a relay as a process."""

import asyncio
import dataclasses
import logging
from contextlib import ExitStack

import click

from oplog_kit import logs
from oplog_kit.command.options import listen_option, log_options
from oplog_kit.ending import Ending
from oplog_kit.http_server import probes, serving
from oplog_kit.wording import counted
from oplog_relay.commands.options import settings_option
from oplog_relay.model.exits import EXIT_OK, PROGRAM
from oplog_relay.model.place import without_password
from oplog_relay.model.settings import RelaySettings
from oplog_relay.model.state import State
from oplog_relay.relay import Relay
from oplog_relay.watch.metrics import Metrics
from oplog_relay.watch.progress import log_event
from oplogc import __version__

# Seconds that the process may outlive the drain, if a database or an agent is unreachable.
_GRACE = 10.0
# Seconds that threads may outlive the relay.
_THREADS = 2.0
logger = logging.getLogger("oplog_relay")


@click.command()
@settings_option()
@listen_option(
    "--metrics-listen",
    "Serve /metrics for Prometheus and /live here, instead of at metrics_listen of the file.",
)
@log_options()
def run(
    settings: RelaySettings, metrics_listen: str | None, log_format: logs.Format, debug: bool
) -> int:
    """Move rows until SIGTERM or Ctrl-C.

    Of the relays with one name, one leads; the others wait. A signal ends the relay once the rows
    in flight are sent and removed, after `drain` of the file at the latest; a second signal ends it
    at once. Exit code: 0 all rows in flight were finished, 1 not all of them. Rows that were not
    finished stay in the outbox, and the next leader sends them.
    """
    logs.configure(log_format, debug)
    if metrics_listen is not None:
        settings = dataclasses.replace(settings, metrics_listen=metrics_listen)
    ending = Ending(logger, "stopped by a second signal: rows in flight will be sent again")
    asyncio.run(_relay(settings, ending))
    return ending.code


async def _relay(settings: RelaySettings, ending: Ending) -> None:
    ending.listen(asyncio.get_running_loop())
    logger.info("oplog-relay %s: %s", __version__, description(settings))
    with ExitStack() as stack:
        if settings.metrics_listen is None:
            relay = Relay(settings)
        else:
            metrics = Metrics(settings)
            relay = Relay(settings, wrap=metrics.measured)
            metrics.watch(relay)
            paths = probes(metrics.registry, lambda: relay.state is not State.STOPPED)
            address = stack.enter_context(
                serving("metrics_listen", settings.metrics_listen, paths, PROGRAM)
            )
            logger.info("metrics at http://%s/metrics", address)
        relay.on_event(log_event)
        await relay.start()
        asked = asyncio.create_task(ending.asked.wait(), name="signal")
        ended = asyncio.create_task(relay.wait(), name="relay")
        await asyncio.wait({asked, ended}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        ending.within(settings.limits.drain + _GRACE)
        await relay.stop()
        await ended
        if left := relay.unfinished:
            logger.warning("stopped: %s in flight will be sent again", counted(left, "row"))
        else:
            logger.info("stopped: nothing is in flight")
            ending.code = EXIT_OK
    ending.within(_THREADS)


def description(settings: RelaySettings) -> str:
    """Return name, agents, database and table in one line, without passwords."""
    return (
        f"relay {settings.name}, agents {', '.join(map(without_password, settings.agents.urls))},"
        f" database {without_password(settings.database.url)}, table {settings.database.table.name}"
    )
