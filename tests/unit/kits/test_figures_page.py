"""The generated part of the benchmarks' page."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kits.figures import page
from tests.kits.figures.catalog import BENCHMARKS, BY_HAND, PLOTS
from tests.kits.figures.figure import Figure
from tests.kits.figures.page import BEGIN, END, MarkError, cell, files, part, plots_of, with_part
from tests.kits.figures.results import Conditions, Result, with_failure
from tests.kits.paths import TESTS

CONDITIONS = Conditions(
    "2026-01-31 12:00 UTC", 0.25, 0.01, "A CPU", 2, 7.8, "CPython 3.11.2", "3.40.1", "Linux 6.1"
)
LATER = replace(CONDITIONS, date="2026-02-28 12:00 UTC", load=3.5, cpu="Another CPU")
UDP = Result([Figure("rate", "operations/s", [80_000], {"a loop": [200_000]})], CONDITIONS, 41.2)
HTTP = Result(
    [Figure("posts", "requests/s", [10, 20, 30], {"uvicorn": [20, 20, 20], "NATS": [5, 5, 5]})],
    LATER, 60.0, runs=3,
)  # fmt: skip


def rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("|")]


def test_the_table_has_a_row_for_each_figure_and_each_run() -> None:
    assert rows(part({"udp": UDP, "http": HTTP})) == [
        "| measured | oplog | beside | repeats | run |",
        "|---|---|---|---|---|",
        "| **Intake over HTTP** | 2026-02-28 12:00 UTC, load average 3.5, 0.01 cores busy, on M1 |"
        " | | 1 |",
        "| posts | 20 (10 to 30) requests/s | 1 (0.500 to 1.50) of uvicorn: 20<br>4 (2 to 6) of"
        " NATS: 5 | 3 | |",
        "| **Intake over UDP** | 2026-01-31 12:00 UTC, load average 0.25, 0.01 cores busy, on M2 |"
        " | | 2 |",
        "| rate | 80,000 operations/s | 0.400 of a loop: 200,000 | 1 | |",
        "| run | command | runs | seconds of one |",
        "|---|---|---|---|",
        "| 1 | `python -m tests.bench.bench_http` | 3 | 60 |",
        "| 2 | `python -m tests.bench.bench_udp` | 1 | 41 |",
    ]


def test_rows_of_one_machine_name_it_once() -> None:
    text = part({"udp": UDP, "http": replace(HTTP, conditions=replace(CONDITIONS, load=9.0))})
    assert re.findall(r"^M\d: .*$", text, re.MULTILINE) == [f"M1: {CONDITIONS.machine}."]
    assert text.count(", on M1 |") == 2


def test_a_failed_benchmark_is_named_with_its_earlier_figures() -> None:
    text = part({"udp": with_failure(UDP, LATER, "lost | a <datagram>")})
    assert (
        "| **Intake over UDP** | failed on 2026-02-28 12:00 UTC: lost \\| a &lt;datagram><br>"
        "2026-01-31 12:00 UTC, load average 0.25, 0.01 cores busy, on M1 |"
    ) in text
    assert "| rate | 80,000 operations/s |" in text
    text = part({"udp": with_failure(None, LATER, "no load")})
    assert "| **Intake over UDP** | failed on 2026-02-28 12:00 UTC: no load | | | 1 |" in text


def test_benchmarks_without_figures_are_listed() -> None:
    assert part({}) == "Nothing is measured yet."
    line = next(each for each in part({"udp": UDP}).splitlines() if "yet" in each)
    assert re.findall(r"`(\w+)`", line) == [name for name in BENCHMARKS if name != "udp"]
    assert "yet" not in part(dict.fromkeys(BENCHMARKS, UDP))


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a | b", "a \\| b"), ("a\\|b", "a\\\\\\|b"), ("two\nlines", "two lines"),
        ("*bold* _x_ `code`", "\\*bold\\* \\_x\\_ \\`code\\`"),
        ("<br> & <b", "&lt;br> &amp; &lt;b"),
        ("[a](b)", "\\[a\\](b)"), ("500 operations/s", "500 operations/s"),
    ],
)  # fmt: skip
def test_text_of_a_cell_has_no_markdown(text: str, escaped: str) -> None:
    assert cell(text) == escaped


def test_the_part_is_replaced_and_the_text_around_it_stays() -> None:
    text = f"# Title\n\n{BEGIN}\n\nold\n\n{END}\n\nText by hand.\n"
    written = with_part(text, "new")
    assert written == f"# Title\n\n{BEGIN}\n\nnew\n\n{END}\n\nText by hand.\n"
    assert with_part(written, "new") == written


@pytest.mark.parametrize(
    "text", ["no marks", BEGIN, END, f"{END}\n{BEGIN}", f"{BEGIN}{END}{BEGIN}{END}"]
)
def test_a_page_without_its_marks_is_refused(text: str) -> None:
    with pytest.raises(MarkError, match=r"benchmarks\.md needs") as error:
        with_part(text, "new")
    assert END in str(error.value)


def test_a_plot_is_written_and_linked_if_it_has_figures() -> None:
    assert set(plots_of({"http": HTTP, "udp": UDP})) == {"http"}
    made = files({"http": HTTP}, f"{BEGIN}{END}")
    assert set(made) == {page.PAGE, page.PLACE / "http.svg"}
    assert "](benchmarks/http.svg)" in made[page.PAGE]
    assert LATER.cpu in made[page.PLACE / "http.svg"]
    assert LATER.moment in made[page.PLACE / "http.svg"]
    other_unit = Result([Figure("server", "µs of CPU", [1])], CONDITIONS, 1.0)
    assert plots_of({"http": other_unit}) == {}


def test_a_plot_without_figures_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "PAGE", tmp_path / "benchmarks.md")
    monkeypatch.setattr(page, "PLACE", tmp_path)
    page.PAGE.write_text(f"{BEGIN}{END}")
    page.write({"http": HTTP})
    assert (tmp_path / "http.svg").exists()
    page.write({"udp": UDP})
    assert not (tmp_path / "http.svg").exists()
    assert "80,000" in page.PAGE.read_text(encoding="utf-8")


def test_every_benchmark_has_a_title_or_a_reason_for_runs_by_hand() -> None:
    modules = {path.stem for path in (TESTS / "bench").glob("bench_*.py")}
    assert {each.module for each in BENCHMARKS.values()} | set(BY_HAND) == modules
    titles = [each.title for each in BENCHMARKS.values()]
    assert all(titles)
    assert len(set(titles)) == len(titles)
    assert {plot.benchmark for plot in PLOTS.values()} <= set(BENCHMARKS)
