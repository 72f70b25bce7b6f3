"""The property tests with many more examples, each round from another seed."""

from tests.conftest import ROOT
from tests.soak.conftest import Rounds
from tests.soak.repeating import run_tests

EXAMPLES = 1000


def test_the_property_tests_hold_for_many_more_examples(rounds: Rounds) -> None:
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    tests = [str(path) for path in files if "@examples(" in path.read_text(encoding="utf-8")]
    assert len(tests) > 10
    for _ in rounds():
        run_tests("-m", "unit", *tests, examples=EXAMPLES)
