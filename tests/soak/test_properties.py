"""The property tests with many more examples, each round from another seed."""

from tests.kits.paths import ROOT
from tests.soak.conftest import Rounds
from tests.soak.repeating import run_tests

EXAMPLES = 1000
# Of a property test on a server, a file or Spark.
SLOW_EXAMPLES = 200


def files() -> list[str]:
    """Return the files of property tests."""
    found = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(path) for path in found if "@given(" in path.read_text(encoding="utf-8")]


def test_the_property_tests_hold_for_many_more_examples(rounds: Rounds) -> None:
    assert len(files()) > 30
    for _ in rounds():
        run_tests("-m", "unit", *files(), examples=EXAMPLES)


def test_the_property_tests_of_servers_hold_for_other_examples(rounds: Rounds) -> None:
    for _ in rounds():
        run_tests("-m", "hypothesis and not unit", *files(), examples=SLOW_EXAMPLES)


def test_the_job_agrees_with_its_oracle_on_other_stores_and_dumps(rounds: Rounds) -> None:
    for _ in rounds():
        run_tests("tests/integration/spark/job/test_rules.py")
