"""``oplog-relay pump``: load for an outbox."""

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import click

from oplog_kit.command.value import Value
from oplog_kit.units import duration
from oplog_kit.wording import counted
from oplog_relay.commands.options import POSITIVE, settings_option
from oplog_relay.db import translated
from oplog_relay.db.operated import PATIENCE
from oplog_relay.db.url import parse
from oplog_relay.model.errors import RowError
from oplog_relay.model.exits import EXIT_OK
from oplog_relay.model.settings import RelaySettings
from oplog_relay.outbox import OutboxWriter

# Seconds between two lines with the rate.
_TELL = 5.0
_OPLOG = ("oplog", "system/oplog")


@click.command()
@settings_option()
@click.option(
    "--keys", type=POSITIVE, default=10, show_default=True, help="Number of different keys."
)
@click.option(
    "--records", type=POSITIVE, default=100, show_default=True, help="Rows of a transaction."
)
@click.option(
    "--interval",
    type=Value("DURATION", duration),
    default="100ms",
    show_default=True,
    help="Time from one transaction to the next; 0: as fast as the database is.",
)
@click.option("--count", type=POSITIVE, help="Number of transactions. Not set: until stopped.")
@click.option("--blank", is_flag=True, help="Write rows without a value; in the oplog: deletions.")
@click.option(
    "--size",
    type=POSITIVE,
    default=100,
    show_default=True,
    help="Characters of a value; one that is too small for its number is longer.",
)
@click.option(
    "--topic",
    default="pump",
    show_default=True,
    metavar="TOPIC",
    help="Topic of the rows, which must exist; `oplog`: operations of objects pump/KEY.",
)
def pump(
    settings: RelaySettings,
    keys: int,
    records: int,
    interval: float,
    count: int | None,
    blank: bool,
    size: int,
    topic: str,
) -> int:
    """Write rows into the outbox, to try or to measure a relay.

    Each transaction writes --records rows over --keys keys in turn. A value has the number of its
    row, so that a consumer can check the order. Ctrl-C ends it.
    """
    writer = OutboxWriter(settings.database.table)
    url = parse(settings.database.url)
    began = reported_at = now = time.monotonic()
    rows = transactions = 0
    with (
        translated(url),
        closing(url.connect(PATIENCE, autocommit=False)) as connection,
        _stopped() as stop,
    ):
        while not stop.is_set() and transactions != count:
            with url.batch(connection):
                for number in range(rows, rows + records):
                    _write(writer, connection, topic, number, f"key-{number % keys}", blank, size)
            connection.commit()
            rows += records
            transactions += 1
            now = time.monotonic()
            if now - reported_at >= _TELL:
                _tell(rows, now - began)
                reported_at = now
            if transactions != count:
                stop.wait(max(began + transactions * interval - now, 0))
    _tell(rows, now - began)
    return EXIT_OK


def _write(
    writer: OutboxWriter,
    connection: Any,
    topic: str,
    number: int,
    key: str,
    blank: bool,
    size: int,
) -> None:
    """Raises click.UsageError for options that no row can have."""
    try:
        if topic in _OPLOG:
            writer.operation(connection, "delete" if blank else "update", "pump", key)
        else:
            value = None if blank else value_of(number, size)
            writer.message(connection, topic, key=key, value=value)
    except RowError as error:
        raise click.UsageError(
            f"--{error.field.replace('value', 'size')}: {error.reason}"
        ) from None


def value_of(number: int, size: int) -> str:
    """Return JSON with the number of a row, of at least ``size`` characters."""
    bare = json.dumps({"number": number, "padding": ""})
    return json.dumps({"number": number, "padding": "x" * (size - len(bare))})


def _tell(rows: int, seconds: float) -> None:
    print(f"{counted(rows, 'row')}, {rows / max(seconds, 0.001):,.0f} per second", flush=True)


@contextmanager
def _stopped() -> Iterator[threading.Event]:
    """Return an event that a signal sets."""
    stop = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stop.set())
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
