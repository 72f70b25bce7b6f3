"""``oplog-relay run``: a relay as a process."""

import asyncio
import dataclasses
import logging
import os
import signal
import threading
from contextlib import ExitStack

import click

from oplog_relay import logs
from oplog_relay.commands.options import settings_option
from oplog_relay.commands.shown import description
from oplog_relay.exits import EXIT_FAILED, EXIT_OK
from oplog_relay.metrics import Metrics
from oplog_relay.metrics_server import serving
from oplog_relay.progress import counted, log_event
from oplog_relay.relay import Relay
from oplog_relay.settings import RelaySettings
from oplog_relay.state import State
from oplogc import __version__

# Seconds that the process may outlive the drain, if a database or an agent is away.
_GRACE = 10.0
# Seconds that threads may outlive the relay.
_THREADS = 2.0
_SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP")
logger = logging.getLogger("oplog_relay")


@click.command()
@settings_option()
@click.option(
    "--metrics-listen",
    metavar="HOST:PORT",
    help="Serve /metrics for Prometheus and /live here, instead of at metrics_listen of the file.",
)
@click.option(
    "--log-format",
    type=click.Choice(logs.FORMATS),
    default="text",
    show_default=True,
    help="Format of the log, which goes to stderr.",
)
@click.option("--debug", is_flag=True, help="Log more, and tracebacks of defects.")
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
    ending = _Ending()
    asyncio.run(_relay(settings, ending))
    return ending.code


class _Ending:
    """Ends the process. ``code``: its exit code."""

    def __init__(self) -> None:
        self.code = EXIT_FAILED
        self.asked = asyncio.Event()

    def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Handle the signals. A signal that is ignored (SIGHUP under ``nohup``) stays ignored."""

        def first(number: signal.Signals) -> None:
            for each in heeded:
                loop.remove_signal_handler(each)
                signal.signal(each, lambda *_: self._leave_at_once())
            logger.info("stopping: %s", number.name)
            self.asked.set()

        heeded = [
            signal.Signals[name]
            for name in _SIGNALS
            if signal.getsignal(signal.Signals[name]) is not signal.SIG_IGN
        ]
        for number in heeded:
            loop.add_signal_handler(number, first, number)

    def within(self, seconds: float) -> None:
        """End the process after this time, whatever hangs: a thread may wait for a database."""
        watchdog = threading.Timer(seconds, lambda: os._exit(self.code))
        watchdog.daemon = True
        watchdog.start()

    def _leave_at_once(self) -> None:
        try:
            logger.warning("stopped by a second signal: rows in flight will be sent again")
        finally:  # the signal may have interrupted a write to the log
            os._exit(EXIT_FAILED)


async def _relay(settings: RelaySettings, ending: _Ending) -> None:
    ending.listen(asyncio.get_running_loop())
    logger.info("oplog-relay %s: %s", __version__, description(settings))
    with ExitStack() as stack:
        if settings.metrics_listen is None:
            relay = Relay(settings)
        else:
            metrics = Metrics(settings)
            relay = Relay(settings, wrap=metrics.measured)
            metrics.watch(relay)
            address = stack.enter_context(
                serving(settings.metrics_listen, metrics.registry, lambda: _is_live(relay))
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


def _is_live(relay: Relay) -> bool:
    return relay.state is not State.STOPPED
