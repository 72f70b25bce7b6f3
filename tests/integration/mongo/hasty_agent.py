"""An agent that soon sweeps entries of topics, and soon treats an insert as late."""

import oplogd.cli
from oplogd.store.mongo.link.timing import DEFAULT_TIMING


def main() -> None:
    object.__setattr__(DEFAULT_TIMING, "settle_seconds", 1.0)
    object.__setattr__(DEFAULT_TIMING, "late_seconds", 0.5)
    oplogd.cli.main()


if __name__ == "__main__":
    main()
