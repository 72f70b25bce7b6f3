"""Makes the messages a sink writes from the entries of the log."""

from collections.abc import Sequence
from typing import NamedTuple, cast

from oplog_pipe.commitlog.codec import LogEntry
from oplog_pipe.deliver.patience import Patience
from oplog_pipe.deliver.steps import Steps
from oplog_pipe.errors import TransformError
from oplog_pipe.message import Message, namespace_filter
from oplog_pipe.model.record import content, decode_record
from oplog_pipe.model.settings import SinkSettings

_FEW = 16


class Prepared(NamedTuple):
    """``messages`` of the first ``entries``. ``bytes``: of their data after the steps."""

    messages: list[Message]
    entries: Sequence[LogEntry]
    bytes: int


class Preparing:
    """The namespace and the steps of one sink.

    ``created``: time of creation of the folder, ms since 1970. ``patience``: with objects.
    ``most``: more entries would probably not be taken by one call.
    """

    def __init__(
        self, settings: SinkSettings, steps: Steps, created: int, patience: Patience
    ) -> None:
        self.matches = namespace_filter(settings.namespace)
        self._steps = steps
        self._created = created
        self._patience = patience
        self._messages = settings.batch.messages
        self.most = self._messages

    def __call__(self, entries: Sequence[LogEntry]) -> Prepared:
        """Take the first entries, at least one: filter, change, fetch.

        Raises SinkError for the first matching one: not ``transient`` once its object has had its
        time.
        """
        matches, message = self.matches, self.message
        wanted = [entry for entry in entries if matches(entry.key)]
        if not wanted:
            return Prepared([], entries, 0)
        try:
            messages, taken = self._steps([message(entry) for entry in wanted])
        except TransformError as error:
            if error.of_object:
                error.transient = not self._patience.is_over(wanted[0].offset)
            raise
        if taken < len(wanted):
            end = wanted[taken].offset
            entries = [each for each in entries if each.offset < end]
            self.most = min(max(2 * taken, _FEW), self._messages)
        else:
            self.most = min(2 * self.most, self._messages)
        if messages:
            self._patience.succeed()
        return Prepared(messages, entries, sum([each.size for each in messages]))

    def message(self, entry: LogEntry) -> Message:
        """Return the message of an entry before all steps. ``entry``: no control entry."""
        offset, timestamp, _, key, data = entry
        found = content(offset, timestamp, key, decode_record(data), self._created)
        return cast(Message, found)
