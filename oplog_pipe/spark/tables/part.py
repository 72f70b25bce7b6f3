"""The rows of a batch on their way into a table."""

from oplog_pipe.errors import BrokenBatchError, PipeError
from oplog_pipe.sinks.parts.fence import other_driver
from oplog_pipe.spark.folders import Folders


class Part:
    """The folder in which one run of a query writes. The next driver takes it away in one step.

    ``prefix``: of the names of all that belongs to the table, other than its rows. A file
    ``PREFIXdriver`` names the run that writes. A run begins its folder ``PREFIXpart-RUN`` once, so
    that without its first file it is not whole. ``rows``: the folder for the rows of a batch.
    """

    def __init__(self, folders: Folders, prefix: str, owner: str, run: str) -> None:
        self._folders = folders
        self._prefix = prefix
        self._owner = owner
        self._run = run
        self._folder = f"{prefix}part-{run}"
        self._first = f"{self._folder}/_first"
        self._driver = f"{prefix}driver"
        # If a file system moves it into a table, Spark passes over it.
        self.rows = f"{self._folder}/_rows-{run}"

    def start(self) -> None:
        """Take the table over: no other driver that began before can bring rows into it."""
        folders = self._folders
        folders.write(self._first, b"")
        folders.write(self._driver, self._run.encode())
        for each in folders.names(f"{self._prefix}part-"):
            if each != self._folder:
                folders.remove(each, f"{self._prefix}dead-")
        for each in folders.names(f"{self._prefix}dead-"):
            folders.delete(each)

    def check(self) -> None:
        """Raise FencedError or BrokenBatchError if another driver has taken the table over.

        If it does so later, ``rows`` are gone.
        """
        if self._folders.read(self._driver) != self._run:
            self._folders.delete(self._folder)
            raise other_driver(self._owner)
        if not self._folders.exists(self._first):
            raise BrokenBatchError("another driver has begun at the same time")

    def overtaken(self) -> PipeError:
        """Return why rows are not in the table."""
        try:
            self.check()
        except PipeError as error:
            return error
        return BrokenBatchError("another driver has changed the table")
