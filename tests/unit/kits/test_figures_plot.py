"""The plots of the benchmarks: SVG that every reader can read."""

import itertools
import re
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from tests.kits.figures.figure import Figure
from tests.kits.figures.plot import DARK, LEFT, LIGHT, RIGHT, WIDTH, bars, svg, ticks

SVG = "{http://www.w3.org/2000/svg}"
POSTS = Figure(
    "posts", "requests/s", [10, 20, 30], {"bare uvicorn": [40, 40, 40], "NATS": [5, 6, 7]}
)
# Digits and text of common fonts are narrower than this on average.
LETTER = 7.0


def drawn(*figures: Figure) -> ElementTree.Element:
    return ElementTree.fromstring(svg("A title", "A day, a machine", figures))


def texts(root: ElementTree.Element) -> list[str]:
    return [each.text or "" for each in root.iter(f"{SVG}text")]


def rectangles(root: ElementTree.Element, kind: str) -> list[dict[str, float]]:
    return [
        {name: float(value) for name, value in each.attrib.items() if name != "class"}
        for each in root.iter(f"{SVG}rect")
        if each.get("class") == kind
    ]


def test_the_plot_has_its_title_names_values_and_unit() -> None:
    found = texts(drawn(POSTS))
    assert {
        "A title",
        "A day, a machine",
        "posts: requests/s, more is better",
        "requests/s",
    } <= set(found)
    assert {"oplog", "bare uvicorn", "NATS"} <= set(found)
    assert {"20 (10 to 30)", "40", "6 (5 to 7)"} <= set(found)


def test_a_screen_reader_gets_a_title_and_all_values() -> None:
    root = drawn(POSTS)
    assert (root.get("role"), root.get("aria-labelledby")) == ("img", "title desc")
    assert root.findtext(f"{SVG}title") == "A title"
    description = root.findtext(f"{SVG}desc") or ""
    assert str(POSTS) in description


def test_the_best_bar_comes_first() -> None:
    assert [bar.name for bar in bars(POSTS)] == ["bare uvicorn", "oplog", "NATS"]
    memory = Figure("memory", "MiB", [50], {"one": [100], "other": [20]})
    assert [bar.name for bar in bars(memory)] == ["other", "oplog", "one"]


def test_bars_are_as_long_as_their_values() -> None:
    root = drawn(POSTS)
    (ours,) = rectangles(root, "ours")
    others = [each["width"] for each in rectangles(root, "other")]
    assert others == [pytest.approx(2 * ours["width"]), pytest.approx(0.3 * ours["width"])]
    assert max(others) == pytest.approx(RIGHT - LEFT)


def test_the_spread_is_marked_if_there_is_one() -> None:
    spreads = [each for each in drawn(POSTS).iter(f"{SVG}path") if each.get("class") == "spread"]
    assert len(spreads) == 2
    lines = [re.match(r"M([\d.]+) [\d.]+H([\d.]+)", each.get("d") or "") for each in spreads]
    scale = (RIGHT - LEFT) / 40
    assert lines[0] is not None
    assert [float(each) for each in lines[0].groups()] == [
        pytest.approx(LEFT + 10 * scale, abs=0.1), pytest.approx(LEFT + 30 * scale, abs=0.1),
    ]  # fmt: skip


LONG = "a program with a name that is much longer than the place before its bar, & <without> an end"
EDGES = {
    "one bar": Figure("memory", "MiB", [50.5]),
    "zero": Figure("lost", "events", [0], {"other": [0]}),
    "zero beside": Figure("rate", "requests/s", [0], {"other": [5]}),
    "huge ratio": Figure("rate", "requests/s", [0.001], {"other": [123_456_789, 223_456_789]}),
    "long names": Figure(LONG, "requests/s", [5], {LONG: [7], "x" * 90: [8]}),
    "wide values": Figure("rate", "messages/s", [1_234_567, 9_876_543], {"other": [9_999_999]}),
}


@pytest.mark.parametrize("name", EDGES)
def test_everything_lies_inside_the_picture(name: str) -> None:
    root = drawn(EDGES[name], POSTS)
    height = float(root.get("height") or 0)
    places = list(boxes(root))
    assert len(places) > 8
    assert [each for each in places if each[1] < 0 or each[2] > WIDTH] == []
    assert [each for each in places if not 0 < each[3] < height] == []


def boxes(root: ElementTree.Element) -> Iterator[tuple[str, float, float, float]]:
    """Yield the text, left, right and vertical place of each element."""
    for each in root.iter(f"{SVG}text"):
        text, kind = each.text or "", (each.get("class") or "").split()
        width = LETTER * len(text)
        left = float(each.get("x") or 0)
        left -= width if "name" in kind else width / 2 if "tick" in kind else 0
        yield text, left, left + width, float(each.get("y") or 0)
    for each in root.iter(f"{SVG}rect"):
        if each.get("class") != "back":
            left = float(each.get("x") or 0)
            yield "bar", left, left + float(each.get("width") or 0), float(each.get("y") or 0)


@pytest.mark.parametrize("name", EDGES)
def test_bars_stay_in_the_plot_area_and_are_visible(name: str) -> None:
    root = drawn(EDGES[name])
    found = rectangles(root, "ours") + rectangles(root, "other")
    assert len(found) == 1 + len(EDGES[name].beside)
    assert all(each["width"] >= 1 and each["x"] + each["width"] <= RIGHT + 1 for each in found)


def test_rows_do_not_overlap() -> None:
    root = drawn(EDGES["long names"], POSTS)
    found = sorted(each["y"] for each in rectangles(root, "ours") + rectangles(root, "other"))
    assert all(second - first >= 26 for first, second in itertools.pairwise(found))
    names = [
        each for each in root.iter(f"{SVG}text") if "name" in (each.get("class") or "").split()
    ]
    lines = [float(each.get("y") or 0) for each in names]
    assert all(second - first >= 14 for first, second in itertools.pairwise(lines))


@pytest.mark.parametrize(
    ("largest", "expected"),
    [
        (0, [0]), (1, [0, 0.5, 1]), (40, [0, 10, 20, 30, 40]), (7, [0, 2, 4, 6]),
        (5_200, [0, 2_000, 4_000]), (0.03, [0, 0.01, 0.02, 0.03]), (99, [0, 50]),
    ],
)  # fmt: skip
def test_ticks_are_round_and_few(largest: float, expected: list[float]) -> None:
    assert ticks(largest) == pytest.approx(expected)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_text_and_bars_stand_out_in_both_themes(theme: dict[str, str]) -> None:
    for name in ("text", "quiet"):
        assert contrast(theme[name], theme["back"]) >= 4.5
    for name in ("ours", "other"):
        assert contrast(theme[name], theme["back"]) >= 3
        assert contrast(theme["text"], theme[name]) >= 3  # the mark of the spread on a bar


def test_the_picture_has_both_themes_and_loads_nothing() -> None:
    text = svg("A title", "A day, a machine", [POSTS])
    light, _, dark = text.partition("@media (prefers-color-scheme:dark)")
    assert all(colour in light for colour in LIGHT.values())
    assert all(colour in dark for colour in DARK.values())
    assert text.count("http") == 1  # the name of the format
