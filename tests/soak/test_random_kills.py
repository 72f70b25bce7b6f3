"""Kills and cut connections at random moments lose nothing, however often they are tried."""

from tests.soak.conftest import Rounds
from tests.soak.repeating import run_tests

TESTS = (
    "tests/e2e/oplog/test_kills.py",
    "tests/e2e/pipe/test_targets.py",
    "tests/e2e/topics/test_kills.py",
    "tests/e2e/transactions/test_load.py",
    "tests/integration/clients/test_nothing_is_lost.py",
)


def test_kills_and_cut_connections_lose_nothing(rounds: Rounds) -> None:
    for _ in rounds():
        run_tests(*TESTS)


def test_killed_requests_and_holders_on_mongodb_lose_nothing(rounds: Rounds) -> None:
    for _ in rounds():
        run_tests(
            "tests/integration/mongo/transactions/test_kills.py",
            "tests/integration/mongo/leases/test_holders.py",
            examples=400,
        )
