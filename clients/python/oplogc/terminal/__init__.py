"""The parts shared by ``oplog-tail`` and ``oplogctl``."""
