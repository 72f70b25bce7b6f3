"""The page on clients names every limit that the table has."""

from tests.conformance import answer_rows, producer_rows, state_rows, stream_rows
from tests.conformance.clients import CONSUMERS
from tests.conformance.limits import LIMITS
from tests.conftest import ROOT

CONSUMER_ROWS = [*stream_rows.ROWS, *answer_rows.ROWS, *state_rows.ROWS]
ROWS = [*CONSUMER_ROWS, *producer_rows.ROWS]


def test_every_row_has_a_name_of_its_own() -> None:
    for rows in (CONSUMER_ROWS, producer_rows.ROWS):
        names = [row.name for row in rows]
        assert len(set(names)) == len(names)


def test_a_row_that_leaves_a_client_out_is_a_limit() -> None:
    left_out = {
        row.name: {client for client in CONSUMERS if client not in row.only}
        for row in ROWS
        if row.only
    }
    assert left_out == {row: set(clients) for row, (clients, _) in LIMITS.items()}


def test_every_limit_is_documented_and_no_other() -> None:
    page = (ROOT / "docs" / "clients.md").read_text()
    section = page.partition("## Behaviours of all clients\n")[2].partition("\n## ")[0]
    table = section.partition("| client | limit |\n")[2]
    documented = [line for line in table.splitlines()[1:] if line.startswith("|")]
    sentences = {sentence for _, sentence in LIMITS.values()}
    assert len(documented) == len(sentences)
    for sentence in sentences:
        assert any(sentence in line for line in documented), sentence
