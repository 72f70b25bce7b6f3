"""Settings as people may see them: without passwords."""

from oplog_relay.model.place import without_password
from oplog_relay.model.settings import RelaySettings


def description(settings: RelaySettings) -> str:
    """Return name, agents, database and table in one line."""
    return (
        f"relay {settings.name}, agents {', '.join(map(without_password, settings.agents.urls))},"
        f" database {without_password(settings.database.url)}, table {settings.database.table.name}"
    )
