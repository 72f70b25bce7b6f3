"""What a file in the folder of a table tells of it."""

from collections.abc import Mapping

import msgspec

from oplog_pipe.errors import ConfigError
from oplog_pipe.spark.folders import Folders
from oplog_pipe.spark.tasks.work import SinkWork
from oplog_sync.failure import SPARK_ERRORS

# Spark reads no files whose names begin so.
_FILE = "_oplog_pipe"


class Mark(msgspec.Struct, frozen=True):
    """- ``checkpoint``: id of the one that has written the table.
    - ``number``: of a mirror: one more with each batch, from 1 on. 0: a history.
    - ``batch``: of a mirror: the last one in it.
    - ``run``: of the query that has written it. ``columns``: their types, by name.
    """

    owner: str
    checkpoint: int
    number: int = 0
    batch: int = -1
    run: str = ""
    columns: dict[str, str] = {}


def note(folders: Folders, path: str, mark: Mark) -> None:
    folders.write(f"{path}/{_FILE}", msgspec.json.encode(mark))


def mark_of(folders: Folders, path: str) -> Mark | None:
    """Return the mark of a table. None: there is none, or a driver was killed in the first note."""
    file = f"{path}/{_FILE}"
    if not folders.exists(file):  # else PySpark would ask Java 40 times to make an error of it
        return None
    try:
        text = folders.read(file)
    except (OSError, *SPARK_ERRORS):
        if folders.exists(file):
            raise
        return None
    return msgspec.json.decode(text, type=Mark) if text else None


def check_owner(folders: Folders, path: str, work: SinkWork, *, is_mirror: bool) -> None:
    """Raise ConfigError if a folder has something else: the next batches would spoil it."""
    mark = mark_of(folders, path)
    if mark is None and (not folders.exists(path) or folders.is_empty(path)):
        return
    mark = mark or mark_of(folders, path)  # another driver may have put it there meanwhile
    whose = None
    if mark is None:
        whose = "files of others"
    elif mark.owner != work.owner:
        whose = f"a table of {mark.owner!r}"
    elif (mark.number > 0) != is_mirror:
        whose = "a table with other settings of merge"
    if whose is not None:
        raise ConfigError(f"{work.place}.path: {path} has {whose}")


def older_checkpoint(path: str, work: SinkWork) -> ConfigError:
    """Return the error for a table with batches that the checkpoint does not know."""
    return ConfigError(
        f"{work.place}.path: {path} has other batches than the checkpoint, which is an older copy,"
        " or of before another one: rows would be lost. Give a new --checkpoint, which begins with"
        " a copy, and another path, or empty this one"
    )


def check_outer(folders: Folders, path: str, work: SinkWork) -> None:
    """Raise ConfigError if a folder is in a table: that would delete it, or read it."""
    outer = path
    while (outer := outer.rpartition("/")[0]) and not outer.endswith("/"):
        if (mark := mark_of(folders, outer)) is not None:
            raise ConfigError(
                f"{work.place}.path: {path} is in {outer}, which has a table of {mark.owner!r}"
            )


def check_types(noted: Mapping[str, str], found: Mapping[str, str], place: str) -> None:
    """Raise ConfigError if a column has another type than noted."""
    before = {name.lower(): kind for name, kind in noted.items()}
    for name, kind in found.items():
        if (was := before.get(name.lower(), kind)) != kind:
            raise ConfigError(
                f"{place}.select: column {name} is now {kind}, and was {was} in the table; cast it,"
                " or begin with a new checkpoint and another path"
            )
