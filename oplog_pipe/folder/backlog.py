"""Tells whether copies bring a sink's whole backlog again."""

from collections.abc import Sequence

from oplog_pipe.commitlog.log import CommitLog
from oplog_pipe.folder.operate import entries
from oplog_pipe.folder.start import topics_of
from oplog_pipe.message import namespace_filter
from oplog_pipe.model.record import decode_record, is_control_key
from oplog_pipe.model.settings import OPLOG, SinkSettings, SourceSettings


class RecoveryBacklog:
    """What one sink has still to write. Not for several threads.

    Entries from before the start may be of sources removed or changed since.
    """

    def __init__(
        self,
        log: CommitLog,
        sink: SinkSettings,
        sources: Sequence[SourceSettings],
        *,
        is_removed: bool,
    ) -> None:
        """``is_removed``: the end of a copy removes from the target what is gone."""
        self._log = log
        self._is_removed = is_removed
        self._end = log.end
        self._wants = namespace_filter(sink.namespace)
        self._copied = {
            each.name: namespace_filter(each.namespace) for each in sources if each.log == OPLOG
        }
        self._topics = topics_of(sink, sources)
        self._at = 0
        self._source = ""

    def lost_behind(self, offset: int) -> str | None:
        """Return why no copy brings again all behind an offset; None: copies do.

        Raises LogError.
        """
        if self._topics:
            return f"no copy brings messages of {', '.join(self._topics)} again"
        if not self._copied:
            return f"there is no source of {OPLOG} that could copy it again"
        if not self._is_removed:
            return "the end of a copy removes nothing from its target: deletions would be lost"
        source = self._source_behind(offset)
        return None if source is None else f"no copy brings messages of source {source!r} again"

    def _source_behind(self, offset: int) -> str | None:
        """Return the source of the first entry no copy brings again."""
        at = max(self._at, offset + 1)
        if self._source and at == self._at:
            return self._source
        self._source = ""
        for entry in entries(self._log, at, self._end - 1):
            if is_control_key(entry.key) or not self._wants(entry.key):
                continue
            source = decode_record(entry.data).source
            copies = self._copied.get(source)
            if not (copies and copies(entry.key)):
                self._at, self._source = entry.offset, source
                return source
        self._at = max(at, self._end)
        return None
