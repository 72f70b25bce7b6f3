"""``--new-epoch``: sets the log aside and begins a new one from the states."""

import asyncio
from pathlib import Path

from oplogd import server
from oplogd.clock import SYSTEM, Clock
from oplogd.config.settings import Settings
from oplogd.errors import StartupError, StoreError


async def begin(settings: Settings, clock: Clock = SYSTEM) -> str:
    """Begin a new log and return a sentence for the user.

    Raises StartupError and StoreError, also if there is no log yet or if another process has the
    file open.
    """
    if settings.mongo_url is not None:
        await _require_database(settings.mongo_url.reveal())
        return await _begin(settings, clock)
    await asyncio.to_thread(_require_file, settings.store)
    try:
        return await _begin(settings, clock)
    except StoreError as error:
        raise StartupError(f"{error} (--store)") from None


async def _begin(settings: Settings, clock: Clock) -> str:
    store = server.make_store(settings, clock)
    await store.open()
    try:
        was_empty = (await store.locate()).oldest is None
        await store.new_epoch()
        head = (await store.locate()).head
    finally:
        await store.close()
    aside = "the old one was empty" if was_empty else "the old one is set aside in the store"
    return f"A new log begins after offset {head.offset}; {aside}. Start the agent again."


def _require_file(path: Path) -> None:
    from oplogd.store.sqlite.probe import FileUse, file_use

    if not path.exists():
        raise StartupError(
            f"--new-epoch: there is no store at {path}; give the agent's path with --store"
        )
    use = file_use(path)
    if use is FileUse.EMPTY:
        raise StartupError(f"--new-epoch: {path} holds no log; give the agent's path with --store")
    if use is FileUse.OPEN:
        raise StartupError(
            f"--new-epoch: another process has the store {path} open;"
            " stop the agent and every other program that reads the file"
        )


async def _require_database(url: str) -> None:
    from oplogd.store.mongo.setup.take_over import look_for_log

    name, found = await look_for_log(url)
    if not found:
        raise StartupError(
            f"--new-epoch: the database {name} holds no log;"
            " check the name of the database in --mongo-url"
        )
