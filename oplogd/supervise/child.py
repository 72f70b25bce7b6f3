"""The life of a worker's process, from the fork to its end."""

import contextlib
import os
import signal
import sys
import traceback

from oplogd import server
from oplogd.clock import Clock
from oplogd.config.settings import Settings
from oplogd.errors import SettingError, StartupError, StoreError, StoreFlagError
from oplogd.host import logs
from oplogd.host.stop import EXIT_FAILED, EXIT_USAGE, leave

# A supervisor handles these. A worker ends when the supervisor tells it, or has ended.
HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def run(settings: Settings, joined: server.Joined, clock: Clock) -> None:
    """Run a worker and end its process. ``settings``: with the share of this worker."""
    code = EXIT_FAILED
    try:
        signal.set_wakeup_fd(-1)
        for number in HANDLED:
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (*HANDLED, signal.SIGCHLD))
        os.environ.pop("NOTIFY_SOCKET", None)  # the supervisor speaks for all
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
