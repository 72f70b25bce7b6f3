"""The command ``oplogd``."""

import asyncio
import os
import sys

from oplogd import logs, new_epoch, server
from oplogd.command_line import parse
from oplogd.errors import StartupError, StoreError, StoreFlagError
from oplogd.settings import Settings


def main() -> None:
    settings = parse(sys.argv[1:], os.environ)
    logs.configure(settings.log_format, settings.debug)
    try:
        code = asyncio.run(_new_epoch(settings)) if settings.new_epoch else server.run(settings)
    except (StartupError, StoreError) as error:
        print(f"oplogd: {error}", file=sys.stderr)
        code = server.EXIT_USAGE if isinstance(error, StoreFlagError) else server.EXIT_FAILED
    sys.exit(code)


async def _new_epoch(settings: Settings) -> int:
    print(await new_epoch.begin(settings))
    return server.EXIT_OK


if __name__ == "__main__":
    main()
