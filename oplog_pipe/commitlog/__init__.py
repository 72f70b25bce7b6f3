"""A commit log in a folder: entries with dense offsets in segments, and its readers' offsets.

Usable by itself: it knows nothing of messages, sources and sinks.
"""

from oplog_pipe.commitlog.codec import LogEntry, Mode, NewEntry
from oplog_pipe.commitlog.compact import Compaction
from oplog_pipe.commitlog.log import CommitLog
from oplog_pipe.commitlog.offsets import OffsetLog
from oplog_pipe.commitlog.segment import Segment

__all__ = ["CommitLog", "Compaction", "LogEntry", "Mode", "NewEntry", "OffsetLog", "Segment"]
