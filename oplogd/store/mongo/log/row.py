"""The document of the log in ``oplog_meta``. No I/O."""

from oplogd.errors import StoreUnavailableError
from oplogd.model.event_id import Mark
from oplogd.store.mongo.link.damage import whole
from oplogd.store.mongo.link.layout import LOG, Document

LOST_STATES = (
    "oplog_states was dropped, and the log no longer holds everything: consumers that need a copy"
    " wait. Run oplog-sync with a dump of all objects, then stop the agents and run one of them"
    " once with --new-epoch"
)


class LogRow:
    """The members of the row, checked. Times are milliseconds since 1970.

    ``folded``: the checkpoint. ``set_aside``: spans of time, ends excluded, of logs that were set
    aside because their clock was ahead. The rest: see ``LogBounds``.
    """

    def __init__(self, document: Document) -> None:
        """Raise StoreUnavailableError if a member is missing or no whole number."""
        self.folded = Mark(_number(document, "n"), _number(document, "ts"))
        self.first = _number(document, "first")
        self.created = _number(document, "created")
        self.purged = _number(document, "purged")
        self.adopted = _number(document, "adopted")
        self.max_bytes = _number(document, "max_bytes")
        self.has_lost_states = "states_lost" in document
        spans = document.get("set_aside", [])
        if not isinstance(spans, list) or not all(isinstance(span, dict) for span in spans):
            raise _damaged("set_aside")
        self.set_aside = tuple((_number(span, "after"), _number(span, "before")) for span in spans)


def _number(document: Document, member: str) -> int:
    found = whole(document.get(member))
    if found is None:
        raise _damaged(member)
    return found


def _damaged(member: str) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"the document {LOG} of oplog_meta is damaged: its member {member} is missing or not of its"
        " type; put it right, or restore oplog_ops, oplog_states and oplog_meta together"
    )
