"""The records of a group's commit log: messages with the transaction's id as key. No I/O."""

import msgspec

from oplogd.model.message import Message, of_payload
from oplogd.model.operation import format_ms
from oplogd.model.transaction import Reason


def begin_record(id_: int, expires_ms: int) -> Message:
    return _record({"event": "begin", "txn": str(id_), "expires_at": format_ms(expires_ms)})


def commit_record(id_: int, records: int) -> Message:
    return _record({"event": "commit", "txn": str(id_), "records": records})


def abort_record(id_: int, reason: Reason) -> Message:
    return _record({"event": "abort", "txn": str(id_), "reason": reason})


def _record(event: dict[str, str | int]) -> Message:
    return of_payload(msgspec.json.encode(event), key=str(event["txn"]))
