"""``oplogd`` that traces its memory: ``python -m tests.integration.web.traced_agent FLAGS``.

At SIGUSR1 it logs the bytes and the objects that it has, and how many of them were garbage.
"""

import gc
import signal
import sys
import tracemalloc

from oplogd.cli import main
from oplogd.garbage import Freezer


def tell(*_: object) -> None:
    gc.unfreeze()
    garbage = gc.collect()
    traced, _peak = tracemalloc.get_traced_memory()
    objects = len(gc.get_objects())
    print(
        f"traced {traced} bytes, {objects} objects, {garbage} garbage", file=sys.stderr, flush=True
    )


if __name__ == "__main__":
    tracemalloc.start()
    # Nothing else collects.
    gc.disable()
    setattr(Freezer, "look", lambda _: None)  # noqa: B010
    signal.signal(signal.SIGUSR1, tell)
    main()
