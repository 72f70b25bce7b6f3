"""Random calls on transactions: 2,000 runs over the model, and some hundreds over real stores."""

from tests.soak.conftest import Rounds
from tests.soak.repeating import run_tests

# The test takes a fifth of them for the model, and a twentieth for SQLite.
EXAMPLES = 10_000


def test_all_readers_see_what_the_lists_have_in_many_more_runs(rounds: Rounds) -> None:
    for _ in rounds():
        run_tests("tests/contract/store/transactions/test_model.py", examples=EXAMPLES)
