"""The life of a worker's process, from the fork to its end."""

import contextlib
import os
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from typing import NamedTuple, NoReturn, Protocol

from oplogd import server
from oplogd.clock import Clock
from oplogd.config.settings import Settings
from oplogd.errors import SettingError, StartupError, StoreError, StoreFlagError
from oplogd.host import logs
from oplogd.host.link import Link
from oplogd.host.stop import EXIT_FAILED, EXIT_USAGE, leave
from oplogd.supervise.place import Place
from oplogd.workers.workers import Worker, Workers

# A supervisor handles these. A worker ends when the supervisor tells it, or has ended.
HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Birth(NamedTuple):
    """A worker in the moment of its fork. ``link``: its end of the line to the supervisor."""

    workers: Workers
    places: Sequence[Place]
    place: Place
    link: socket.socket

    def joined(self) -> server.Joined:
        """Return what the worker keeps. Close what belongs to the others."""
        spare: dict[int, list[socket.socket]] = {}
        for other in self.places:
            if other.link is not None:
                other.link.close()
            if other is not self.place:
                spare[other.number] = other.listeners.udp
                for sock in other.listeners.http:
                    sock.close()
        worker = Worker(self.workers, self.place.number)
        return server.Joined(worker, self.place.listeners, spare, Link(self.link))


class Closeable(Protocol):
    def close(self) -> None: ...


def run(
    settings: Settings, birth: Birth, of_supervisor: Sequence[Closeable], clock: Clock
) -> NoReturn:
    """Run a worker and end its process. ``settings``: with the part of this worker."""
    code = EXIT_FAILED
    try:
        signal.set_wakeup_fd(-1)
        for number in HANDLED:
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (*HANDLED, signal.SIGCHLD))
        os.environ.pop("NOTIFY_SOCKET", None)  # the supervisor speaks for all
        for each in of_supervisor:
            each.close()
        joined = birth.joined()
        logs.configure(settings.log_format, settings.debug, joined.worker.number)
        code = server.run(settings, clock=clock, joined=joined)
    except (StartupError, StoreError) as error:
        print(f"oplogd: {error}", file=sys.stderr)
        if isinstance(error, SettingError | StoreFlagError):
            code = EXIT_USAGE
    except BaseException:
        with contextlib.suppress(OSError, ValueError):
            traceback.print_exc()
    finally:
        leave(code)
