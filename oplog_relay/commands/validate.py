"""``oplog-relay validate``: checks the settings, and all that they name."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from uuid import uuid4

import click

from oplog_kit.command.options import PATIENCE, tell
from oplog_kit.wording import counted
from oplog_relay.agent.lease import HttpLease
from oplog_relay.commands.options import settings_option
from oplog_relay.config.file import shown
from oplog_relay.db import open_outbox
from oplog_relay.leader.rivals import identity_of
from oplog_relay.model.errors import ConfigError, LeaseUnavailableError, RelayError
from oplog_relay.model.exits import EXIT_OK, PROGRAM
from oplog_relay.model.note import read_note
from oplog_relay.model.place import OutboxPlace, conflict, place_of, without_password
from oplog_relay.model.settings import RelaySettings

_NO_NAME = "!"  # an agent with leases refuses it, an older one does not know the path


@click.command()
@settings_option()
@click.option("--offline", is_flag=True, help="Check the file only.")
def validate(settings: RelaySettings, offline: bool) -> int:
    """Check the settings, and all that they name.

    Prints them with all defaults and without secrets. Then asks the database for the table, its
    columns and the rights on them, and each agent for the lease and the right to take it. Changes
    nothing. Exit code: 0 all is well, 1 the database or an agent has a problem, 2 the settings have
    mistakes.
    """
    print(shown(settings).rstrip())
    if offline:
        return EXIT_OK
    return asyncio.run(tell(PROGRAM, _answers(settings)))


async def _answers(settings: RelaySettings) -> AsyncIterator[tuple[str, str]]:
    """Yield the subject of each answer and a sentence. A problem has no subject."""
    place = place_of(settings.database)
    try:
        rows, place = await _database(settings)
        yield f"database {place.database}", f"table {place.table}, {counted(rows, 'row')}"
    except RelayError as error:
        yield "", str(error)
    for url in settings.agents.urls:
        one = dataclasses.replace(settings.agents, urls=(url,))
        try:
            sentence = await _agent(dataclasses.replace(settings, agents=one), place)
            yield f"agent {without_password(url)}", sentence
        except ConfigError as error:
            yield "", str(error)
        except LeaseUnavailableError as error:
            address, said = without_password(url), str(error)
            yield "", said if address in said else f"agents.urls: {address}: {said}"


async def _database(settings: RelaySettings) -> tuple[int, OutboxPlace]:
    """Return the number of rows, and the outbox. Raises ConfigError, OutboxError."""
    outbox = open_outbox(settings.database)
    try:
        await outbox.check()
        backlog = await outbox.backlog(1_000_000)
        return backlog.rows, place_of(settings.database, await identity_of(outbox, PATIENCE))
    finally:
        await outbox.dispose()


async def _agent(settings: RelaySettings, place: OutboxPlace) -> str:
    """Ask one agent for the lease. Raises ConfigError, LeaseUnavailableError.

    ConfigError also if a relay for another outbox holds it.
    """
    lease = HttpLease(settings, f"{PROGRAM} validate {uuid4()}")
    try:
        # No relay has this name, so the agent refuses. It checks the right before.
        await lease.release(PATIENCE, 1)
        await check_that_it_has_leases(settings)
        try:
            state = await lease.look(PATIENCE)
        except LeaseUnavailableError:  # reading may need another password
            return f"lease {settings.name}, which may be taken, but not looked at"
        if state is None or not state.is_held:
            return f"lease {settings.name}, free"
        if (rival := conflict(settings.name, read_note(state.note), place)) is not None:
            raise ConfigError(f"name: {rival}")
        return f"lease {settings.name}, held by {state.holder}"
    finally:
        await lease.close()


async def check_that_it_has_leases(settings: RelaySettings) -> None:
    """Raises ConfigError for an agent that is too old. The settings name one agent."""
    lease = HttpLease(dataclasses.replace(settings, name=_NO_NAME), PROGRAM)
    try:
        await lease.release(PATIENCE, 1)
    except LeaseUnavailableError:
        return
    finally:
        await lease.close()
    (url,) = settings.agents.urls
    raise ConfigError(f"agents.urls: {without_password(url)} has no leases: update it")
