"""The databases for an outbox."""

from collections.abc import Iterator
from contextlib import contextmanager

from oplog_relay.db.base import DatabaseOutbox, DatabaseUrl
from oplog_relay.db.url import parse
from oplog_relay.model.errors import ConfigError, OutboxError
from oplog_relay.model.settings import DatabaseSettings

__all__ = ["DatabaseOutbox", "open_outbox", "translated"]


def open_outbox(settings: DatabaseSettings) -> DatabaseOutbox:
    """Return the outbox of the settings; the first call connects. Raises ConfigError."""
    url = parse(settings.url)
    with translated(url):
        return url.outbox(settings.table)


@contextmanager
def translated(url: DatabaseUrl) -> Iterator[None]:
    """Turn an error of the driver into OutboxError, with the first line of its text.

    A missing driver is a ConfigError.
    """
    try:
        yield
    except ImportError as error:
        raise ConfigError(
            f"database.url: {url.label} needs {next(iter(url.drivers))} ({error}); in the checkout"
            " of oplog, run: pip install -c constraints.txt '.[relay]' ./clients/python"
        ) from None
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in url.drivers:
            raise
        said = str(error).strip().partition("\n")[0] or type(error).__name__
        raise OutboxError(f"{url.label} (database.url): {said}") from None
