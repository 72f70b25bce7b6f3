"""A folder that each batch replaces by a whole new one."""

from oplog_pipe.spark.folders import Folders
from oplog_pipe.spark.tables.mark import Mark, check_outer, check_owner, mark_of, note
from oplog_pipe.spark.tables.part import Part
from oplog_pipe.spark.tasks.work import SinkWork


class Swap:
    """``path``: of the table. Its neighbours have hidden names, such as ``_NAME.driver``.

    ``_NAME.before-ID`` is a table that was at ``path``. Of several the one with the largest number
    counts, and none is deleted before a newer one is at ``path``.
    """

    def __init__(self, folders: Folders, path: str, work: SinkWork) -> None:
        folder, name = path.rsplit("/", 1)
        self._prefix = f"{folder}/_{name}."
        self._folders = folders
        self._path = path
        self._work = work
        self.part = Part(folders, self._prefix, work.owner, work.run)

    def start(self) -> None:
        """Raise ConfigError if something else is there. Else take the table over."""
        check_outer(self._folders, self._path, self._work)
        for each in (self._path, *self._folders.names(f"{self._prefix}before-")):
            check_owner(self._folders, each, self._work, is_mirror=True)
        self.part.start()
        self._settle()

    def present(self) -> Mark | None:
        """Return the mark of the table. None: there is no table."""
        self.part.check()
        if (mark := self._mark(self._path)) is None:
            mark = self._settle()
        return mark

    def publish(self, mark: Mark) -> None:
        """Let the rows of the part be the table. ``mark``: has one number more than ``present``."""
        folders = self._folders
        note(folders, self.part.rows, mark)
        self.part.check()
        self._put_away()
        newest = max((each.number for each in self._before().values()), default=0)
        is_next = newest == mark.number - 1
        is_moved = is_next and folders.move(self.part.rows, self._path)
        if not is_moved or self._mark(self._path) != mark:
            self._settle()
            raise self.part.overtaken()
        self._clean(mark.number)

    def _settle(self) -> Mark | None:
        """Bring the newest table to the path, and return its mark."""
        folders = self._folders
        while True:
            present = self._mark(self._path)
            before = self._before()
            newest = max(before, key=lambda each: before[each].number, default=None)
            if newest is None:
                return present
            if present is not None and present.number >= before[newest].number:
                self._clean(present.number)
                return present
            if present is not None or self._has_empty_one():
                self._put_away()
            folders.move(newest, self._path)

    def _has_empty_one(self) -> bool:
        return self._folders.exists(self._path) and self._folders.is_empty(self._path)

    def _put_away(self) -> None:
        self._folders.move(self._path, self._folders.unique(f"{self._prefix}before-"))

    def _clean(self, number: int) -> None:
        """Delete tables that are older than this number."""
        for path, mark in self._before().items():
            if mark.number < number:
                self._folders.remove(path, f"{self._prefix}dead-")

    def _before(self) -> dict[str, Mark]:
        """Return the marks of tables that were at the path. A folder that was empty has 0."""
        found = {}
        for each in self._folders.names(f"{self._prefix}before-"):
            found[each] = self._mark(each) or Mark(self._work.owner, 0)
        return found

    def _mark(self, path: str) -> Mark | None:
        return mark_of(self._folders, path)
