"""Opens, checks and closes the bindings of a relay."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from oplog_relay.leader.end import GRACE_S
from oplog_relay.model.bindings import Bindings, CheckedOutbox, LeaseClient, Outbox, Publisher
from oplog_relay.model.errors import OutboxError
from oplog_relay.model.settings import RelaySettings

_log = logging.getLogger("oplog_relay")


def open_bindings(
    settings: RelaySettings,
    holder: str,
    outbox: Outbox | None,
    lease: LeaseClient | None,
    publisher: Publisher | None,
) -> Bindings:
    """Return the given bindings, and those of the settings instead of None. Raises ConfigError."""
    # Imported here: a relay with other bindings needs no library for these.
    if outbox is None or lease is None or publisher is None:
        from oplog_relay.config.checks import check

        check(settings)
    if lease is None:
        from oplog_relay.agent.lease import HttpLease

        lease = HttpLease(settings, holder)
    if publisher is None:
        from oplog_relay.agent.publisher import HttpPublisher

        publisher = HttpPublisher(settings)
    if outbox is None:
        from oplog_relay.db import open_outbox

        outbox = open_outbox(settings.database)
    return Bindings(outbox, lease, publisher)


async def check_table(outbox: Outbox) -> None:
    """Raise ConfigError if the table does not fit the settings."""
    if isinstance(outbox, CheckedOutbox):
        try:
            await outbox.check()
        except OutboxError as error:
            _log.warning("the table could not be checked: %s", error)


async def close_binding(name: str, closing: Coroutine[Any, Any, None]) -> None:
    """Wait a moment until a binding is closed. A failure is logged."""
    try:
        async with asyncio.timeout(GRACE_S):
            await closing
    except Exception as error:
        _log.warning("closing the %s failed: %s", name, str(error) or "time-out")


def first_of(error: BaseException) -> BaseException:
    """Return the first error of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
