"""The first lines of the log: which addresses an agent serves, and whom it lets in."""

import logging
from collections.abc import Sequence
from socket import socket

from oplogd import __version__
from oplogd.config.settings import LOCAL, Settings
from oplogd.host.sockets import ANY_IPV4, ANY_IPV6, interfaces, is_on_all_interfaces

logger = logging.getLogger("oplogd")


def announce(
    settings: Settings, url: str, http: Sequence[socket], udp: Sequence[str], database: str | None
) -> None:
    """Log the addresses and the store. ``database``: the kind of a store that is not a file."""
    reached = interfaces(http)
    if settings.listen is None:
        reached = f"this machine only; --listen :{LOCAL.port} serves others"
    logger.info(
        "oplogd %s on %s, UDP %s, store %s",
        __version__,
        f"{url} ({reached})" if reached else url,
        ", ".join(udp) or "off",
        database or settings.store,
    )


def warn(settings: Settings, http: Sequence[socket], *, was_written: bool) -> None:
    """Warn if too many are let in, or fewer than before.

    ``was_written``: the store is older than this start.
    """
    if is_on_all_interfaces(http[0]):
        _warn_of_open_access(settings)
    if settings.listen is None and was_written:
        logger.warning(
            "only this machine reaches this agent. Earlier versions served all interfaces without"
            " --listen, and the store is older than this start. If producers or consumers on other"
            " machines use it, give --listen :%d; --listen %s keeps it as it is, without this"
            " warning",
            LOCAL.port,
            LOCAL,
        )


def _warn_of_open_access(settings: Settings) -> None:
    """Log a warning if a right needs no password."""
    udp = settings.udp_address
    ways = "HTTP and UDP" if udp and udp.host in ("", ANY_IPV4, ANY_IPV6) else "HTTP"
    passwords = (
        ("read operations over HTTP", "--password", settings.password),
        (f"send operations over {ways}", "--ingest-password", settings.ingest_password),
    )
    missing = [(right, flag) for right, flag, password in passwords if password is None]
    if missing:
        logger.warning(
            "no password: everyone who can reach this machine may %s;"
            " set %s, or give --listen a single address",
            " and ".join(right for right, _ in missing),
            " and ".join(flag for _, flag in missing),
        )
