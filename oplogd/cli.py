"""The command ``oplogd``."""

import asyncio
import os
import sys

from oplogd.settings import Settings, command


def main() -> None:
    oplogd = command()
    oplogd.complete(os.environ)
    settings = oplogd.parse(sys.argv[1:], os.environ)
    if not settings.new_epoch and (reason := unusable_file(settings)):
        oplogd.refuse(reason)
    sys.exit(_run(settings))


def unusable_file(settings: Settings) -> str | None:
    """Return a sentence if --store or --spool can never name a file, None otherwise."""
    name, path = "--store", settings.store
    if settings.mongo_url is not None:
        if settings.spool is None:
            return None
        name, path = "--spool", settings.spool
    if path.is_dir():
        return f"{name}: {path} cannot be opened: it is a folder; name a file"
    if not path.parent.is_dir():
        return f"{name}: {path} cannot be opened: there is no folder {path.parent}"
    return None


def _run(settings: Settings) -> int:
    # Imported late: --help, --version, a bad flag and a completion need no server.
    from oplogd import logs, new_epoch, server
    from oplogd.errors import SettingError, StartupError, StoreError, StoreFlagError

    async def begin_epoch() -> int:
        print(await new_epoch.begin(settings))
        return server.EXIT_OK

    logs.configure(settings.log_format, settings.debug)
    try:
        return asyncio.run(begin_epoch()) if settings.new_epoch else server.run(settings)
    except (StartupError, StoreError) as error:
        print(f"oplogd: {error}", file=sys.stderr)
        is_setting = isinstance(error, SettingError | StoreFlagError)
        return server.EXIT_USAGE if is_setting else server.EXIT_FAILED


if __name__ == "__main__":
    main()
