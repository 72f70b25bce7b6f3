"""Look at the local files of a dump before Spark starts."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from glob import iglob

from oplog_sync.errors import DumpError
from oplog_sync.failure import shown_path

# With these, names may belong to another file system, or Java runs already.
_OF_PLATFORMS = (
    "HADOOP_CONF_DIR",
    "PYSPARK_GATEWAY_PORT",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_CONF_DIR",
    "SPARK_HOME",
    "YARN_CONF_DIR",
)
# Up to about this many bytes Java's best compiler takes more time than its code saves.
SMALL_BYTES = 64 << 20
_COMPRESSION = 10

_LOCAL = re.compile(r"(?:file:(?://)?(?=/[^/]))?(?![A-Za-z][A-Za-z0-9+.-]*:/)(.+)", re.DOTALL)
# Patterns that Python and Hadoop read in different ways.
_OTHER_PATTERN = re.compile(r"[\[\]{}\\]")


def refuse_missing(dumps: Sequence[str], environ: Mapping[str, str]) -> None:
    """Raise DumpError for a local name without a file. Names in doubt are left to Hadoop."""
    if any(environ.get(name) for name in _OF_PLATFORMS):
        return
    for dump in dumps:
        local = _LOCAL.fullmatch(dump)
        if dump != "-" and local and _is_missing(local[1]):
            raise DumpError(f"there is no {shown_path(dump)}")


def is_small(dumps: Sequence[str]) -> bool:
    """Return whether the dump is certainly local and small."""
    total = 0
    for size in _sizes(dumps):
        total += size
        if total > SMALL_BYTES:
            return False
    return total > 0


def _sizes(dumps: Sequence[str]) -> Iterator[int]:
    for dump in dumps:
        local = _LOCAL.fullmatch(dump)
        names = {local[1], *iglob(local[1])} if local and dump != "-" else set()
        if not any(map(os.path.exists, names)):
            yield SMALL_BYTES + 1
        for name in names:
            files = [name] if os.path.isfile(name) else []
            files += [os.path.join(at, each) for at, _, inside in os.walk(name) for each in inside]
            for file in files:
                factor = 1 if file.endswith((".jsonl", ".json", ".csv")) else _COMPRESSION
                with suppress(OSError):
                    yield os.stat(file).st_size * factor


def _is_missing(name: str) -> bool:
    try:
        os.stat(name)
        return False
    except (FileNotFoundError, NotADirectoryError):
        if _OTHER_PATTERN.search(name):
            return False
        return next(iglob(name, include_hidden=True), None) is None
    except (OSError, ValueError):
        return False
