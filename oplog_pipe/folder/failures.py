"""The failures of a pipe: reported once, and the first one gives the exit code."""

import logging
from collections.abc import Iterable

from oplog_pipe.deliver.worker import Worker
from oplog_pipe.errors import ConfigError, GapError, PipeError, SinkError
from oplog_pipe.folder.keeper import SinkKeeper
from oplog_pipe.model.exits import EXIT_FAILED, EXIT_GAP, EXIT_SINK, EXIT_USAGE

logger = logging.getLogger("oplog_pipe")


class PipeFailures:
    """``code``: exit code of the first failure; None: there was none."""

    def __init__(self) -> None:
        self.code: int | None = None
        self._logged: set[int] = set()

    def look(self, workers: Iterable[Worker], keeper: SinkKeeper | None) -> None:
        """Tell the failures of these threads."""
        for worker in workers:
            if worker.error is not None:
                self.tell(worker.error, worker)
        if keeper is not None and keeper.error is not None:
            self.tell(keeper.error)

    def tell(self, error: BaseException, worker: Worker | None = None) -> None:
        """Log a failure once."""
        if id(error) in self._logged:
            return
        self._logged.add(id(error))
        if self.code is None:
            self.code = exit_code(error)
        if not isinstance(error, PipeError):
            logger.error("a defect of this program", exc_info=error)
        elif worker is not None and isinstance(error, SinkError):
            logger.error(
                "sink %r stops the pipe: %s; its offset is %d, and the next start takes the"
                " messages behind it one at a time", worker.name, error, worker.place.offset,
            )  # fmt: skip
        else:
            logger.error("%s", error)


def exit_code(error: BaseException) -> int:
    """Return the exit code of a failure."""
    codes = {ConfigError: EXIT_USAGE, SinkError: EXIT_SINK, GapError: EXIT_GAP}
    return next((code for kind, code in codes.items() if isinstance(error, kind)), EXIT_FAILED)
