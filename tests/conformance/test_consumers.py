"""Every consumer shows the same behaviour."""

import pytest

from tests.conformance import answer_rows, state_rows, stream_rows
from tests.conformance.clients import CONSUMERS
from tests.conformance.conftest import Outcomes
from tests.conformance.judge import judge
from tests.conformance.play import Row

ROWS = [*stream_rows.ROWS, *answer_rows.ROWS, *state_rows.ROWS]
_CASES = [
    (client, row)
    for row in ROWS
    for client in row.only or CONSUMERS
    if not (row.python_once and client == "python-async")
]


@pytest.mark.parametrize(
    ("client", "row"), _CASES, ids=[f"{client}-{row.name}" for client, row in _CASES]
)
def test_consumer(client: str, row: Row, outcomes: Outcomes) -> None:
    judge(row, outcomes[client, row.name])
