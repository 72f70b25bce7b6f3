"""The comparison of random dumps with random stores on Spark, each round from another seed."""

from tests.kits.paths import ROOT
from tests.soak.conftest import Rounds
from tests.soak.repeating import run_tests


def test_the_job_agrees_with_the_oracle_however_often_it_is_asked(rounds: Rounds) -> None:
    for _ in rounds():
        run_tests(str(ROOT / "tests/integration/spark/job/test_rules.py"))
