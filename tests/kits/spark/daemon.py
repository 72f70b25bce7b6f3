"""PySpark's daemon, which has imported all that its workers need: they are forks of it."""

import gc

import pandas  # noqa: F401
import pyarrow.dataset  # noqa: F401
from pyspark import daemon

import oplog_sync.dump
import oplog_sync.source  # noqa: F401
import oplogd.store.mongo  # noqa: F401

if __name__ == "__main__":
    gc.freeze()  # workers collect after each task
    daemon.manager()
