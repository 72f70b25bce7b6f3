"""Bodies of bulk requests, and the meaning of their answers. No I/O."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec

from oplog_pipe.errors import SinkError, TargetError
from oplog_pipe.message import Message
from oplog_pipe.model.reasons import of_search
from oplog_pipe.sinks.parts.lines import rfc3339
from oplog_pipe.sinks.parts.ownership import Owner
from oplog_pipe.sinks.parts.template import Template
from oplog_pipe.sinks.search.names import IndexNames, check_id

# The member of a document with the figures of its message.
OWN = "oplog"
_BUSY = frozenset({429, 500, 502, 503, 504})
_encode = msgspec.json.Encoder().encode


class BulkAction(NamedTuple):
    """``place``, ``offset``: of its message, in the batch and in the log. ``target``: an index."""

    place: int
    offset: int
    target: str
    id: str
    body: bytes


def items(
    messages: Sequence[Message], names: IndexNames, ids: Template, owner: str
) -> list[BulkAction]:
    """Return the actions of messages, in their order.

    Raises SinkError with the place of an unusable message.
    """
    found = []
    for place, message in enumerate(messages):
        try:
            index = names.of(message.namespace)
            id_ = check_id(ids.of(message))
            body = _action(message, index, id_, owner)
            found.append(BulkAction(place, message.offset, index, id_, body))
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise SinkError(f"{message!r}: {error}", index=place) from None
    return found


def bodies(actions: Sequence[BulkAction], max_bytes: int) -> Iterator[list[BulkAction]]:
    """Yield the actions in groups of at most this size; a single one may be larger."""
    group: list[BulkAction] = []
    size = 0
    for action in actions:
        if group and size + len(action.body) > max_bytes:
            yield group
            group, size = [], 0
        group.append(action)
        size += len(action.body)
    if group:
        yield group


def check(answer: object, actions: Sequence[BulkAction], done: set[int] | None = None) -> None:
    """Raise SinkError unless the answer confirms each action, now or before.

    A permanent failure takes precedence. ``done``: gets the offsets of confirmed actions.
    """
    busy: SinkError | None = None
    refused: SinkError | None = None
    for entry, action in _answers(answer, "items", actions):
        with readable():
            ((kind, result),) = entry.items()
            status, error = int(result["status"]), result.get("error")
        # 409: the index has a newer version. 404 of a deletion: there is nothing to delete.
        if status < 300 or status == 409 or (kind == "delete" and status == 404 and not error):
            if done is not None:
                done.add(action.offset)
            continue
        reason = f"index {action.target}: {of_search(error)} (HTTP {status})"
        # A node with little room blocks writing until it has more.
        blocked = isinstance(error, dict) and error.get("type") == "cluster_block_exception"
        if status in _BUSY or blocked:
            busy = busy or SinkError(reason, transient=True, index=action.place)
        elif status in (401, 403, 404):
            refused = refused or TargetError(reason)
        else:
            refused = refused or SinkError(reason, index=action.place)
    if failure := refused or busy:
        raise failure


def check_owners(answer: object, actions: Sequence[BulkAction], owner: Owner) -> None:
    """Judge the documents before a write, as ``_mget`` returns them.

    Raises SinkError for one of another owner, ConfigError for a version the folder has not
    given.
    """
    newest: dict[str, int] = {}
    for entry, action in _answers(answer, "docs", actions):
        with readable():
            own = entry.get("_source", {}).get(OWN, {})
            found, version = own.get("owner"), int(own.get("version", 0))
        if not owner.may_write(found):
            where = f"index {action.target}: document {action.id!r}"
            raise owner.refusal(where, found, action.place)
        newest[action.target] = max(newest.get(action.target, 0), version)
    for index, version in newest.items():
        owner.check(f"index {index}", version)


def _answers(
    answer: object, member: str, actions: Sequence[BulkAction]
) -> Iterator[tuple[Any, BulkAction]]:
    """Return the entry of each action in an answer. Raises SinkError if one lacks."""
    with readable():
        entries = answer[member]  # type: ignore[index]
        if len(entries) != len(actions):
            raise ValueError
    return zip(entries, actions, strict=True)


@contextmanager
def readable() -> Iterator[None]:
    """Raise SinkError for an unusable answer, such as one of a proxy."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        raise SinkError(
            "the answer does not confirm the documents: is a proxy before Elasticsearch?",
            transient=True,
        ) from None


def changes_of_owner(hits: Sequence[Any], owner: str) -> list[BulkAction]:
    """Return the actions that give unchanged documents another owner."""
    found = []
    for place, hit in enumerate(hits):
        target = {
            "_index": hit["_index"],
            "_id": hit["_id"],
            "if_seq_no": hit["_seq_no"],
            "if_primary_term": hit["_primary_term"],
        }
        body = _encode({"update": target}) + b"\n" + _encode({"doc": {OWN: {"owner": owner}}})
        found.append(BulkAction(place, 0, hit["_index"], hit["_id"], body + b"\n"))
    return found


def _action(message: Message, index: str, id_: str, owner: str) -> bytes:
    target = {
        "_index": index,
        "_id": id_,
        "version": message.version,
        "version_type": "external_gte",
    }
    if message.op == "delete":
        return _encode({"delete": target}) + b"\n"
    return _encode({"index": target}) + b"\n" + _document(message, owner) + b"\n"


def _document(message: Message, owner: str) -> bytes:
    own = {
        "version": message.version,
        "source": message.source,
        "namespace": message.namespace,
        "timestamp": rfc3339(message.timestamp),
        "owner": owner,
    }
    data = message.data
    if not isinstance(data, dict):
        kind = "null" if data is None else type(data).__name__
        raise ValueError(f"data must be an object, not {kind}: use a transform")
    if OWN in data:
        raise ValueError(f"data has a member {OWN!r}, which the sink needs: use a transform")
    return _encode({**data, OWN: own})
