"""Filters for documents with a begin and an end: see ``Present.is_over``. No I/O."""

from typing import Any

from oplogd.clock.ages import MAX_LEAD_MS, Present

Document = dict[str, Any]


def is_alive(present: Present) -> Document:
    """Return the filter for documents with ``begun`` and ``expires`` that are not over."""
    return {"expires": {"$gte": present.ms}} if present.is_plain else {"$or": _alive(present)}


def is_over(present: Present) -> Document:
    """Return the filter for documents that are over."""
    if present.is_plain:
        return {"expires": {"$lt": present.ms}}
    return {"$nor": _alive(present)}


def is_past(name: str, ms: int) -> Document:
    """Return the filter for a time of the store that has passed.

    Or it was noted while the guarded time was ahead: nothing is planned for later than a minute.
    """
    return {"$or": [{name: {"$lt": ms}}, {name: {"$gt": ms + MAX_LEAD_MS}}]}


def _alive(present: Present) -> list[Document]:
    spans = present.spans()
    begun = [{"begun": {"$gte": each.first, "$lte": each.last}} for each in spans]
    ends = [{"expires": {"$gte": each.ends}} for each in spans]
    known: list[Document] = [one | other for one, other in zip(begun, ends, strict=True)]
    return [*known, {"expires": {"$gte": present.elsewhere}, "$nor": begun}]
