"""The machine on which Spark plans a read or a write: only tasks there can use a SQLite file.

The driver's Python process plans. It knows the session's master only if ``oplog_sync.register``
has told it. A task knows the master in Spark's SQL, and compares its machine with the planner's.
"""

import hashlib
import socket
from dataclasses import dataclass
from pathlib import Path

from pyspark import TaskContext

from oplog_sync.errors import OptionError
from oplog_sync.source.options import SourceOptions

# Files that identify the running kernel and the installed system. A container may have the same
# ones as its host, so its host name counts, too.
_IDENTIFIERS = ("proc/sys/kernel/random/boot_id", "etc/machine-id")

_ADVICE = "use a local master, its agents (option agent), or a store in MongoDB"


@dataclass(frozen=True)
class Place:
    """A machine or a container. ``mark`` is a digest: systemd asks to keep machine ids secret."""

    host: str
    mark: str


class Placed:
    """A reader or a writer that Spark plans on one machine and uses on others."""

    def __init__(self, options: SourceOptions) -> None:
        is_file = options.store is not None and options.backend().needs_local_master
        self._planned = here() if is_file else None

    def check_place(self) -> None:
        """Raise OptionError in a task that may not have the planner's files."""
        if self._planned is not None:
            check_task(self._planned)


def here(root: Path = Path("/"), host: str | None = None) -> Place:
    """Return the place of this process. ``root`` and ``host`` are those of another machine."""
    host = host or socket.gethostname()
    identifiers = [_text(root / name) for name in _IDENTIFIERS]
    mark = hashlib.sha256("\n".join([host, *identifiers]).encode()).hexdigest()
    return Place(host, mark)


def check_task(planned: Place) -> None:
    """Raise OptionError if this task, planned there, may run on another machine."""
    task = TaskContext.get()
    check_local(task.getLocalProperty("spark.master") if task else None)
    check_place(planned, here())


def check_local(master: str | None) -> None:
    """Raise OptionError if this master has executors on other machines. None: not known."""
    if master is not None and not master.startswith("local"):
        raise OptionError(
            "option store: a SQLite store is a file of one machine, which the executors of "
            f"{master} cannot read; {_ADVICE}"
        )


def check_place(planned: Place, current: Place) -> None:
    """Raise OptionError if the two are different machines."""
    if planned != current:
        other = "another machine named " if planned.host == current.host else ""
        raise OptionError(
            f"option store: a SQLite store is a file of one machine. {planned.host} planned the "
            f"task, which runs on {other}{current.host}; {_ADVICE}"
        )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:  # not on this system: the host name must do
        return ""
