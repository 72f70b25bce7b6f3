"""Quirks of servers with MongoDB's protocol.

They are one frozen value, chosen when the server is greeted. The defaults describe MongoDB itself.
Code asks a field of the value, never the server's name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Quirks:
    """Differences of a server from MongoDB. Each comment names the servers that need the field."""

    # The command for the description of the server and its clock. mongo-java-server has only the
    # older ``isMaster``.
    hello_command: str = "hello"

    # Whether reads can be causally consistent, in sessions. mongo-java-server has none.
    has_sessions: bool = True

    # Documents per insert command. FerretDB inserts by the hundred: after an error it continues
    # with the next hundred, although the insert is ordered.
    inserts_per_command: int = 5_000

    # Updates per update command. FerretDB holds one of its hundred connections for each update
    # until the command ends.
    updates_per_command: int = 1_000

    # Whether a tailable cursor can wait for data. FerretDB reads the whole collection every 10 ms
    # while it waits, and the end of the wait sometimes breaks another query.
    awaits_tail: bool = True

    # Whether a tailable cursor may skip an entry inserted during a read, as FerretDB's does.
    tail_misses_inserts: bool = False

    # Whether a range read may leave out a document inserted meanwhile. FerretDB's does.
    ranges_miss_inserts: bool = False

    # Whether aggregations have the stage ``$sample``. FerretDB does not.
    has_sample: bool = True


def quirks_of(
    hello_command: str, hello: Mapping[str, Any], build_info: Mapping[str, Any]
) -> Quirks:
    """Return the quirks of a server by its answers to ``hello_command`` and to ``buildInfo``."""
    has_sessions = hello.get("logicalSessionTimeoutMinutes") is not None
    if "ferretdbVersion" not in build_info:
        return Quirks(hello_command=hello_command, has_sessions=has_sessions)
    return Quirks(
        hello_command=hello_command,
        has_sessions=has_sessions,
        inserts_per_command=100,
        updates_per_command=20,
        awaits_tail=False,
        tail_misses_inserts=True,
        ranges_miss_inserts=True,
        has_sample=False,
    )
