"""The command ``oplogd``."""

import asyncio
import gc
import os
import sys
from pathlib import Path

from oplogd.clock import SYSTEM, Clock
from oplogd.config.command import command
from oplogd.config.settings import Settings
from oplogd.host.early import fail_at_signals, leave_at_signals
from oplogd.host.stop import EXIT_FAILED


def main(clock: Clock = SYSTEM) -> None:
    leave_at_signals()
    if sys.argv[1:2] == ["hash-password"]:
        from oplogd import hash_password

        sys.exit(hash_password.run(sys.argv[2:]))
    oplogd = command()
    oplogd.complete(os.environ)
    settings = oplogd.parse(sys.argv[1:], os.environ)
    if not settings.new_epoch:
        name, path = _file(settings)
        if path is not None and path.is_dir():
            oplogd.refuse(f"{name}: {path} cannot be opened: it is a folder; name a file")
        if path is not None and not path.parent.is_dir():
            # A later start may find it, such as a volume that is not mounted yet.
            reason = f"cannot be opened: there is no folder {path.parent}"
            print(f"oplogd: {name}: {path} {reason}", file=sys.stderr)
            sys.exit(EXIT_FAILED)
    sys.exit(_run(settings, clock))


def _file(settings: Settings) -> tuple[str, Path | None]:
    """Return the flag and the path of the file that the agent writes. None: no file."""
    if settings.mongo_url is not None:
        return "--spool", settings.spool
    return "--store", settings.store


def _run(settings: Settings, clock: Clock) -> int:
    # Imported late: --help, --version, a bad flag and a completion need no server.
    # Imports leave next to no garbage, and looking for it takes a sixth of their time.
    gc.disable()
    from oplogd import new_epoch, server
    from oplogd.errors import SettingError, StartupError, StoreError, StoreFlagError
    from oplogd.host import logs

    gc.freeze()
    gc.enable()

    logs.configure(settings.log_format, settings.debug)
    try:
        if not settings.new_epoch:
            if settings.workers == 1:
                return server.run(settings, clock=clock)
            from oplogd.supervise import supervisor

            return supervisor.run(settings, clock=clock)
        fail_at_signals()
        print(asyncio.run(new_epoch.begin(settings, clock)))
        return server.EXIT_OK
    except (StartupError, StoreError) as error:
        print(f"oplogd: {error}", file=sys.stderr)
        is_setting = isinstance(error, SettingError | StoreFlagError)
        return server.EXIT_USAGE if is_setting else server.EXIT_FAILED


if __name__ == "__main__":
    main()
