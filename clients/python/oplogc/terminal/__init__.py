"""The parts that ``oplog-tail`` and ``oplogctl`` share."""
