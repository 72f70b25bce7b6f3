"""Settings as people may see them: without passwords."""

from oplog_relay.settings import RelaySettings


def description(settings: RelaySettings) -> str:
    """Return name, agents, database and table in one line."""
    return (
        f"relay {settings.name}, agents {', '.join(map(without_password, settings.agents.urls))},"
        f" database {without_password(settings.database.url)}, table {settings.database.table.name}"
    )


def without_password(url: str) -> str:
    """Return a URL without user, password and query. One without a scheme is not shown."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return "(an address that cannot be read)"
    if not scheme.startswith("sqlite"):
        rest = rest.rpartition("@")[2]  # the last one: a password may hold others
    return f"{scheme}://{rest.partition('?')[0]}"
