"""Which types an Accept header names, and the little that a long one costs."""

import sys
from types import FrameType

import pytest

from oplogd.web.http.headers import accepts

STREAM = "text/event-stream"


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        (STREAM, True),
        ("text/html, TEXT/Event-Stream ; q=0.5", True),
        (f"{STREAM};q=0, {STREAM}", True),
        (f"{STREAM};q=0", False),
        (f"{STREAM};charset=utf-8;q=0.0,text/html", False),
        (f"{STREAM};q=high", False),
        (f"text/html;q=0,{STREAM},*/*;q=0", True),
        (f"{STREAM}s", False),
        (f"x{STREAM}", False),
        (f"text/html;level={STREAM}", False),
        ("*/*", False),
        ("text/*", False),
        ("", False),
        (",", False),
        ("," * 60_000 + STREAM, True),
        (f"{STREAM}x," * 3 + STREAM, True),
    ],
)
def test_an_accept_header_names_a_type_or_not(header: str, accepted: bool) -> None:
    assert accepts(header, STREAM) is accepted


@pytest.mark.parametrize(
    "header",
    ["," * 60_000, f"{STREAM}," * 3_000, f"{STREAM};q=0," * 3_000, STREAM + ";" * 60_000],
    ids=["commas", "wanted", "unwanted", "parameters"],
)
def test_a_long_accept_header_costs_few_steps(header: str) -> None:
    steps = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal steps
        steps += 1

    sys.setprofile(count)
    try:
        accepts(header, STREAM)
    finally:
        sys.setprofile(None)
    assert steps < 1_000
