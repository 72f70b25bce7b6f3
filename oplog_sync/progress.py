"""Progress lines of the comparison, from all tasks of the cluster."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import Accumulator, SparkContext

from oplog_sync.report import tell

PROGRESS_SECONDS = 5.0


class RowProgress:
    """The rows read of the store and of the dump. Spark adds those of a task at its end."""

    def __init__(self, context: SparkContext) -> None:
        self.states: Accumulator[int] = context.accumulator(0)
        self.rows: Accumulator[int] = context.accumulator(0)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Print a line every few seconds until the block ends."""
        is_done = threading.Event()

        def show() -> None:
            while not is_done.wait(PROGRESS_SECONDS):
                tell(str(self))

        printer = threading.Thread(target=show, name="progress", daemon=True)
        printer.start()
        try:
            yield
        finally:
            is_done.set()
            printer.join()

    def __str__(self) -> str:
        return f"read {self.states.value:,} states and {self.rows.value:,} rows of the dump"
