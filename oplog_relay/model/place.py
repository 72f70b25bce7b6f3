"""The outbox of a relay, as its lease names it. No I/O."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from oplog_relay.model.settings import DatabaseSettings

# Characters of a URL in a lease's note.
_MAX_URL = 500


class OutboxPlace(NamedTuple):
    """``database``: URL without password and query. ``identity``: of ``IdentifiedOutbox``."""

    database: str
    table: str
    identity: str = ""

    def members(self) -> dict[str, str]:
        """Return the members of the note."""
        known = {"database": self.database[:_MAX_URL], "table": self.table}
        return {**known, "outbox": self.identity} if self.identity else known


def place_of(settings: DatabaseSettings, identity: str = "") -> OutboxPlace:
    return OutboxPlace(without_password(settings.url), settings.table.name, identity)


def without_password(url: str) -> str:
    """Return a URL without user, password and query. One without a scheme is not shown."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return "(an address that cannot be read)"
    if not scheme.startswith("sqlite"):
        rest = rest.rpartition("@")[2]  # the last one: a password may hold others
    return f"{scheme}://{rest.partition('?')[0]}"


def conflict(name: str, note: Mapping[str, Any], mine: OutboxPlace) -> str | None:
    """Return a sentence if the note of a lease is from a relay for another outbox.

    URLs may differ for one database, so only identities are compared.
    """
    identity = note.get("outbox")
    if not identity or not mine.identity or identity == mine.identity:
        return None
    who = holder_of(note) or "another relay"
    return (
        f"the lease {name} is held by {who} for table {note.get('table')} of"
        f" {note.get('database')}, so no row of table {mine.table} of {mine.database} is sent:"
        " give one of the two groups another name"
    )


def holder_of(note: Mapping[str, Any]) -> str:
    """Return host and process of the relay that has written a note; empty: it does not tell."""
    return f"{note['host']} (process {note['pid']})" if {"host", "pid"} <= note.keys() else ""
