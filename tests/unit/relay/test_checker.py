"""The checker of the relay's tests accepts what is right and names what is wrong."""

from collections.abc import Sequence

import pytest

from tests.kits.relay.checker import Arrival, Sent, check

COMMITTED = {"a": [Sent("t", 0), Sent("t", 1), Sent("t", 2)], "b": [Sent("t", 0)]}


def arrivals(text: str) -> list[Arrival]:
    """Return what this says: ``a0 a1 u:b0@7``; the log is ``t`` unless it is named."""
    found = []
    for word in text.split():
        log, _, row = word.rpartition(":")
        name, _, ms = row.partition("@")
        found.append(Arrival(log or "t", name[0], int(name[1:]), int(ms or 0)))
    return found


@pytest.mark.parametrize(
    ("text", "duplicates"),
    [
        ("a0 a1 a2 b0", 0),
        ("b0 a0 a1 a2", 0),
        ("a0 b0 a1 b0 a2", 1),
        ("a0 a1 a1 b0 a2", 1),
        ("a0 a0 a1 b0 a1 a1 a2", 3),
    ],
)
def test_rows_in_order_with_adjacent_duplicates_are_right(text: str, duplicates: int) -> None:
    assert check(arrivals(text), COMMITTED) == duplicates


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a0 a1 a0 a2 b0", "key 'a': 0 arrived after 1 in t"),
        ("a0 a1 a0 a1 a2 b0", "key 'a': 0 arrived after 1 in t"),
        ("a0 a2 a1 b0", "key 'a': 1 arrived after 2 in t"),
        ("a1 a0 a2 b0", "key 'a': 0 arrived after 1 in t"),
        ("a0 a2 b0", "key 'a': 1 is missing in t"),
        ("a0 a1 b0", "key 'a': 2 is missing in t"),
        ("a0 a1 a2", "key 'b': 0 is missing in t"),
        ("", "key 'b': 0 is missing in t"),
        ("a0 a1 a2 b0 b1", "key 'b': 1 arrived in t and was never committed for it"),
        ("a0 a1 a2 b0 c0", "key 'c': 0 arrived in t and was never committed for it"),
        ("a0 a1 a2 b0 u:b0", "key 'b': 0 arrived in u and was never committed for it"),
    ],
)
def test_rows_out_of_order_lost_or_never_committed_are_named(text: str, problem: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check(arrivals(text), COMMITTED)
    assert problem in str(caught.value).splitlines()


TWO_LOGS = {"a": [Sent("t", 0), Sent("u", 1), Sent("t", 2)]}


@pytest.mark.parametrize(
    ("text", "duplicates"),
    [
        ("a0@5 a2@7 u:a1@6", 0),
        ("a0@5 a2@5 u:a1@5", 0),
        ("a0@5 a0@6 a2@8 u:a1@6 u:a1@8", 2),
    ],
)
def test_a_key_in_two_logs_is_right_if_its_times_do_not_contradict(
    text: str, duplicates: int
) -> None:
    assert check(arrivals(text), TWO_LOGS) == duplicates


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a0@7 a2@8 u:a1@6", "key 'a': 1 arrived in u before 0 in t"),
        ("a0@5 a0@7 a2@8 u:a1@6", "key 'a': 1 arrived in u before 0 in t"),
        ("a0@5 a2@7 u:a1@6 u:a1@8", "key 'a': 2 arrived in t before 1 in u"),
    ],
)
def test_a_key_in_two_logs_is_wrong_if_its_times_contradict(text: str, problem: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check(arrivals(text), TWO_LOGS)
    assert problem in str(caught.value).splitlines()


def test_committed_numbers_that_repeat_are_an_error_of_the_test() -> None:
    repeated: Sequence[Sent] = [Sent("t", 0), Sent("t", 0)]
    with pytest.raises(AssertionError, match="numbers of committed rows repeat"):
        check(arrivals("a0 a0"), {"a": repeated})
