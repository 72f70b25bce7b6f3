"""The command ``oplogd``."""

import asyncio
import os
import sys

from oplogd import logs, server
from oplogd.command_line import parse
from oplogd.errors import StartupError, StoreError
from oplogd.settings import Settings


def main() -> None:
    settings = parse(sys.argv[1:], os.environ)
    logs.configure(settings.log_format, settings.debug)
    try:
        code = asyncio.run(_new_epoch(settings)) if settings.new_epoch else server.run(settings)
    except (StartupError, StoreError) as error:
        print(f"oplogd: {error}", file=sys.stderr)
        code = server.EXIT_FAILED
    sys.stderr.flush()
    if code == server.EXIT_UNWRITTEN:
        os._exit(code)  # a thread may hang in the store
    sys.exit(code)


async def _new_epoch(settings: Settings) -> int:
    store = server.make_store(settings)
    await store.open()
    try:
        await store.new_epoch()
        head = (await store.locate()).head
    finally:
        await store.close()
    print(f"A new log begins after offset {head.offset}; the old one is set aside in the store. Start the agent again.")
    return server.EXIT_OK


if __name__ == "__main__":
    main()
