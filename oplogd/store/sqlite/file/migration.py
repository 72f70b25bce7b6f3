"""Bringing an older file to the present version of the schema."""

import contextlib
import logging
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from oplogd.errors import ForeignStoreError
from oplogd.store.sqlite.file.schema import ADDED, APPLICATION_ID, MIGRATIONS

PROGRESS_SECONDS = 5.0
# Instructions of SQLite's virtual machine between two looks at the clock: some 10 ms.
PROGRESS_STEPS = 1_000_000

logger = logging.getLogger("oplogd.store")


def read_version(db: sqlite3.Connection, path: Path) -> int:
    """Return the version of the schema, 0 for a new file.

    Raises ForeignStoreError for another program's file and for a newer version.
    """
    # Read the tables first: a process that creates the file commits all three together.
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (application,) = db.execute("PRAGMA application_id").fetchone()
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    if tables and application != APPLICATION_ID:
        raise ForeignStoreError(
            f"store {path}: this SQLite file is not an oplog store; give --store another path"
        )
    if version > len(MIGRATIONS):
        raise ForeignStoreError(
            f"store {path}: its schema is version {version}, this oplog knows up to"
            f" {len(MIGRATIONS)}; use the newer oplog that wrote it, or give --store another path"
        )
    return version


def migrate(db: sqlite3.Connection, path: Path) -> None:
    """Create the tables or bring them to the present version, in the caller's transaction."""
    version = read_version(db, path)
    # The writer has a temporary trigger on tables of later versions. Else a renaming checks it.
    db.execute("PRAGMA legacy_alter_table = ON")
    for number, migration in enumerate(MIGRATIONS[version:], version + 1):
        with _progress(db, path, number) if version else contextlib.nullcontext():
            for statement in migration.statements:
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {number}")
        if version:
            logger.info("store %s: schema is now version %d (%s)", path, number, migration.name)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute("PRAGMA legacy_alter_table = OFF")
    for statement in ADDED:
        db.execute(statement)


@contextlib.contextmanager
def _progress(db: sqlite3.Connection, path: Path, version: int) -> Iterator[None]:
    """Log the begin of a migration, and every few seconds that it still runs."""
    began = logged = time.monotonic()
    logger.info(
        "store %s: bringing the file to schema version %d; a large one takes a while",
        path,
        version,
    )

    def log_progress() -> None:
        nonlocal logged
        if (now := time.monotonic()) - logged >= PROGRESS_SECONDS:
            logged = now
            logger.info("store %s: still migrating after %.0f s", path, now - began)

    db.set_progress_handler(log_progress, PROGRESS_STEPS)
    try:
        yield
    finally:
        db.set_progress_handler(None, 0)
