"""Makes the messages a sink writes from the entries of the log."""

from collections.abc import Sequence
from typing import NamedTuple, cast

from oplog_pipe.commitlog.codec import LogEntry
from oplog_pipe.deliver.patience import Patience
from oplog_pipe.deliver.steps import Namespaces, Steps, TakenMessages
from oplog_pipe.errors import TransformError
from oplog_pipe.message import Message, Op, version_of
from oplog_pipe.model.record import decode_record
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
        self.namespaces = Namespaces(settings.namespace)
        self._steps = steps
        self._created = created
        self._patience = patience
        self._messages = settings.batch.messages
        self.most = self._messages

    def __call__(self, entries: Sequence[LogEntry]) -> Prepared:
        """Take the first entries, at least one: filter, change, fetch.

        Raises SinkError for the first one the namespace matches. Its ``transient`` is false
        once an object has had its time.
        """
        namespaces = self.namespaces
        wanted = [entry for entry in entries if entry.key in namespaces]
        if not wanted:
            return Prepared([], entries, 0)
        messages, taken = self._attempt(wanted)
        if taken < len(wanted):
            end = wanted[taken].offset
            entries = [each for each in entries if each.offset < end]
            self.most = min(max(2 * taken, _FEW), self._messages)
        else:
            self.most = min(2 * self.most, self._messages)
        if messages:
            self._patience.succeed()
        return Prepared(messages, entries, sum([each.size for each in messages]))

    def _attempt(self, wanted: Sequence[LogEntry]) -> TakenMessages:
        message = self.message
        try:
            return self._steps([message(entry) for entry in wanted])
        except TransformError as error:
            if error.of_object:
                error.transient = not self._patience.is_over(wanted[0].offset)
            raise

    def message(self, entry: LogEntry) -> Message:
        """Return a message as it is before all steps."""
        offset, timestamp, _, key, data = entry
        record = decode_record(data)
        return Message(
            cast(Op, record.op),  # only control entries have other ones
            timestamp,
            key,
            record.data,
            id=record.id,
            offset=offset,
            version=version_of(self._created, offset),
            source=record.source,
        )
