"""The first lines of the log: which addresses an agent serves, and whom it lets in."""

import logging
from collections.abc import Sequence
from socket import socket

import msgspec

from oplogd import __version__
from oplogd.config.settings import LOCAL, Settings
from oplogd.host.sockets import (
    ANY_IPV4,
    ANY_IPV6,
    address_of,
    base_url,
    interfaces,
    is_on_all_interfaces,
)

logger = logging.getLogger("oplogd")


class Served(msgspec.Struct):
    """What the first lines tell of the store.

    ``database``: the kind of a store that is not a file. ``was_written``: it is older than this
    start.
    """

    database: str | None
    was_written: bool


def announce(
    settings: Settings, http: Sequence[socket], udp: Sequence[socket], served: Served
) -> str:
    """Log the addresses and the store. Warn if too many are let in, or fewer than before.

    Return the base URL.
    """
    url = base_url(http, tls=settings.tls_certificate is not None)
    reached = interfaces(http)
    if settings.listen is None:
        reached = f"this machine only; --listen :{LOCAL.port} serves others"
    logger.info(
        "oplogd %s on %s, UDP %s, store %s%s",
        __version__,
        f"{url} ({reached})" if reached else url,
        ", ".join(str(address_of(sock)) for sock in udp) or "off",
        served.database or settings.store,
        f", {settings.workers} workers" if settings.workers > 1 else "",
    )
    if is_on_all_interfaces(http[0]):
        _warn_of_open_access(settings)
    if settings.listen is None and served.was_written:
        logger.warning(
            "only this machine reaches this agent. Earlier versions served all interfaces without"
            " --listen, and the store is older than this start. If producers or consumers on other"
            " machines use it, give --listen :%d; --listen %s keeps it as it is, without this"
            " warning",
            LOCAL.port,
            LOCAL,
        )
    return url


def _warn_of_open_access(settings: Settings) -> None:
    """Log a warning if a right needs no password."""
    udp = settings.udp_address
    ways = "HTTP and UDP" if udp and udp.host in ("", ANY_IPV4, ANY_IPV6) else "HTTP"
    passwords = (
        ("read operations over HTTP", "--password", settings.guards_reading),
        (f"send operations over {ways}", "--ingest-password", settings.guards_writing),
    )
    missing = [(right, flag) for right, flag, is_guarded in passwords if not is_guarded]
    if missing:
        logger.warning(
            "no password: everyone who can reach this machine may %s;"
            " set %s, or give --listen a single address",
            " and ".join(right for right, _ in missing),
            " and ".join(flag for _, flag in missing),
        )
