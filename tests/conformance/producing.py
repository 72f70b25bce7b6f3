"""Operations to send, and the scenarios of producers."""

import json
from collections.abc import Sequence
from typing import Any

from tests.conformance.play import Scenario
from tests.conformance.steps import (
    Ingest,
    Script,
)

Fields = dict[str, Any]


def operation(id_: str, **fields: Any) -> Fields:
    return {"event": "insert", "type": "video", "id": id_, **fields}


def lines(*operations: Fields) -> bytes:
    return b"".join(
        json.dumps(operation, ensure_ascii=False).encode() + b"\n" for operation in operations
    )


# Most scenarios send one operation: clients may split several into batches as they like.
ONE = lines(operation("a"))
ALL = ["a"]
ABC = lines(*map(operation, "abc"))
DELIVERED: Script = [Ingest()]


def producer(name: str, answers: Sequence[Script], **fields: Any) -> Scenario:
    return Scenario(name, "producer", answers, **{"input": ONE, **fields})
