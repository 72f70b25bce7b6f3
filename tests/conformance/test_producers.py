"""Every producer shows the same behaviour."""

import pytest

from tests.conformance.clients import PRODUCERS
from tests.conformance.conftest import Outcomes
from tests.conformance.judge import judge
from tests.conformance.play import Row
from tests.conformance.producer_rows import ROWS

_CASES = [
    (client, row)
    for row in ROWS
    for client in row.only or PRODUCERS
    if not (row.python_once and client == "python-async")
]


@pytest.mark.parametrize(
    ("client", "row"), _CASES, ids=[f"{client}-{row.name}" for client, row in _CASES]
)
def test_producer(client: str, row: Row, outcomes: Outcomes) -> None:
    judge(row, outcomes[client, row.name])
