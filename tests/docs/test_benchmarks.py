"""The benchmarks' page shows the stored figures, and explains each benchmark."""

import re

from tests.kits.figures.page import BEGIN, END, PAGE, PLACE, files
from tests.kits.figures.results import load
from tests.kits.paths import TESTS


def test_the_table_and_the_plots_are_those_of_the_stored_figures() -> None:
    made = files(load(), PAGE.read_text(encoding="utf-8"))
    current = {path: path.read_text(encoding="utf-8") for path in (PAGE, *PLACE.glob("*.svg"))}
    assert current == made, "write them again: python -m tests.bench.report --write-only"


def test_the_text_by_hand_names_every_benchmark() -> None:
    text = PAGE.read_text(encoding="utf-8")
    by_hand = text.partition(BEGIN)[0] + text.partition(END)[2]
    modules = {path.stem for path in (TESTS / "bench").glob("bench_*.py")}
    assert modules - set(re.findall(r"bench_\w+", by_hand)) == set()
