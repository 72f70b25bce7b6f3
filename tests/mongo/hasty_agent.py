"""``oplogd`` that sweeps entries a second after a sweep saw them, and checks inserts half as late.

Start it with ``python -m tests.mongo.hasty_agent FLAGS``.
"""

from oplogd.cli import main
from oplogd.store.mongo.timing import DEFAULT_TIMING

if __name__ == "__main__":
    # The default of a parameter cannot be replaced any more. It is frozen.
    object.__setattr__(DEFAULT_TIMING, "settle_seconds", 1.0)
    object.__setattr__(DEFAULT_TIMING, "late_seconds", 0.5)
    main()
