"""Kills and cut connections at random moments lose nothing, however often they are tried."""

from tests.conftest import ROOT
from tests.soak.conftest import Rounds
from tests.soak.repeating import run_tests

FOLDERS = ("clients", "e2e", "pipe/e2e")
FILES = (
    "test_nothing_is_lost.py",
    "test_durability.py",
    "test_kills.py",
    "test_targets.py",
    "test_topic_kills.py",
    "test_transaction_load.py",
)


def test_kills_and_cut_connections_lose_nothing(rounds: Rounds) -> None:
    paths = [ROOT / "tests" / folder / name for folder in FOLDERS for name in FILES]
    tests = [str(path) for path in paths if path.exists()]
    assert len(tests) > 3
    for _ in rounds():
        run_tests("-m", "not mongo", *tests)


def test_killed_requests_and_holders_on_mongodb_lose_nothing(rounds: Rounds) -> None:
    for _ in rounds():
        run_tests(
            "tests/mongo/test_transactions_kills.py", "tests/mongo/test_holders.py", examples=400
        )
