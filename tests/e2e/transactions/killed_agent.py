"""``oplogd`` that kills itself: ``python -m tests.e2e.transactions.killed_agent FLAGS``.

It dies when it has appended some pages of a transaction to MongoDB's log. Variables of the
environment give their number, and the operations of a page.
"""

import itertools
import os
import signal
from collections.abc import Awaitable, Callable

from oplogd.cli import main
from oplogd.store.mongo.link.timing import DEFAULT_TIMING
from oplogd.store.mongo.transactions import payloads

PAGES_VARIABLE = "OPLOG_TEST_KILLED_AFTER_PAGES"
OPERATIONS_VARIABLE = "OPLOG_TEST_OPERATIONS_PER_PAGE"


def killing(pages: int) -> Callable[[str], Awaitable[None]]:
    numbers = itertools.count(1)

    async def at_step(name: str) -> None:
        if name == "page" and next(numbers) == pages:
            os.kill(os.getpid(), signal.SIGKILL)

    return at_step


if __name__ == "__main__":
    payloads.MOST_PAYLOADS = int(os.environ[OPERATIONS_VARIABLE])
    # The default of a parameter cannot be replaced any more. It is frozen.
    object.__setattr__(DEFAULT_TIMING, "at_step", killing(int(os.environ[PAGES_VARIABLE])))
    main()
