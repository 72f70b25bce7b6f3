"""Pointers and snapshots are read strictly, and judged as the table of the rules says."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oplogd.decode.pieces import at_once
from oplogd.errors import MessageError
from oplogd.model.isolation import EntryKind, Reading, reading
from oplogd.model.pointer import (
    MAX_POINTER,
    MAX_SNAPSHOT_POINTERS,
    Decision,
    Snapshot,
    Voided,
    by_decisions,
    decided,
    decided_by,
    decode_voided,
    encode_voided,
    nothing_stored,
    parse_key,
    parse_pointer,
    parsing_snapshot,
    stored_before,
    too_many_stored,
)
from oplogd.model.transaction import FIRST_ID, Isolation, Marker, encode_marker
from oplogd.store.pointers import runs_of
from tests.kits.models.properties import examples

PASS, SKIP, HOLD = Reading.PASS, Reading.SKIP, Reading.HOLD
LEAST, MOST = -(2**63), 2**63 - 1
# As a Tephra server makes them.
TEPHRA = 1_732_000_000_123 * 1_000_000

WHOLE = "must be a whole number of 64 bits"


def snapshot_of(given: Any) -> Snapshot:
    return at_once(parsing_snapshot(given))


# --- Pointers and keys ---


@examples()
@given(st.integers(0, MAX_POINTER))
@example(0)
@example(MAX_POINTER)
@example(TEPHRA)
def test_a_pointer_is_a_number_or_its_digits(pointer: int) -> None:
    assert parse_pointer(pointer) == parse_pointer(str(pointer)) == pointer
    assert MAX_POINTER == 2**62 - 1


@pytest.mark.parametrize(
    "given",
    [
        -1, 2**62, 2**63, 10**30, 1.0, True, None, [], {},
        "", " 1", "1 ", "+1", "-1", "01", "1.0", "1e3", "0x1", "1_0", "\u0661", "\u00b2", "1\n",
        str(2**62), "9" * 20, "9" * 5000,
    ],
)  # fmt: skip
def test_other_values_are_no_pointer(given: Any) -> None:
    with pytest.raises(MessageError) as caught:
        parse_pointer(given, "here")
    assert str(caught.value) == (
        "here: must be a whole number from 0 to 4611686018427387903 (2^62 - 1)"
    )
    with pytest.raises(MessageError, match=r"^transactionWritePointer: must be"):
        parse_pointer(given)


@examples()
@given(st.integers(0, 2**80 - 1))
@example(0)
def test_a_key_is_the_20_digits_of_a_stamp(stamp: int) -> None:
    assert parse_key(f"{stamp:020x}", "rollbackKeys[0]") == stamp


@pytest.mark.parametrize("given", [0, None, "", "0" * 19, "0" * 21, "A" * 20, "0" * 19 + "\u0661"])
def test_other_values_are_no_key(given: Any) -> None:
    with pytest.raises(MessageError) as caught:
        parse_key(given, "rollbackKeys[3]")
    assert str(caught.value) == (
        "rollbackKeys[3]: must be 20 lower-case hexadecimal digits:"
        " 16 of the time and 4 of the sequence"
    )


# --- Snapshots ---


@pytest.mark.parametrize(
    ("given", "snapshot"),
    [
        ({"readPointer": 1}, Snapshot(1)),
        ({"readPointer": str(LEAST), "writePointer": None}, Snapshot(LEAST)),
        ({"readPointer": MOST, "writePointer": "0"}, Snapshot(MOST, 0)),
        ({"readPointer": TEPHRA, "inProgress": None, "invalid": []}, Snapshot(TEPHRA)),
        (
            {"readPointer": "5", "writePointer": 7, "inProgress": [1, "2", 2], "invalid": ["-3"]},
            Snapshot(5, 7, frozenset({1, 2}), frozenset({-3})),
        ),
    ],
)
def test_a_snapshot_is_read(given: dict[str, Any], snapshot: Snapshot) -> None:
    assert snapshot_of(given) == snapshot


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "transaction: must be an object or null"),
        ([], "transaction: must be an object or null"),
        ({}, "transaction.readPointer: is required"),
        ({"readPointer": 1, "inprogress": []},
         "transaction.inprogress: is not a member of a transaction"),
        ({"readPointer": None}, f"transaction.readPointer: {WHOLE}"),
        ({"readPointer": MOST + 1}, f"transaction.readPointer: {WHOLE}"),
        ({"readPointer": "-0x1"}, f"transaction.readPointer: {WHOLE}"),
        ({"readPointer": 1, "writePointer": True}, f"transaction.writePointer: {WHOLE}"),
        ({"readPointer": 1, "inProgress": {}},
         "transaction.inProgress: must be a list of pointers"),
        ({"readPointer": 1, "inProgress": [1, 1.0]}, f"transaction.inProgress[1]: {WHOLE}"),
        ({"readPointer": 1, "inProgress": [True]}, f"transaction.inProgress[0]: {WHOLE}"),
        ({"readPointer": 1, "invalid": [1, 2, LEAST - 1]}, f"transaction.invalid[2]: {WHOLE}"),
        ({"readPointer": 1, "invalid": "5"}, "transaction.invalid: must be a list of pointers"),
        ({"readPointer": 1, "invalid": ["1"] * 2500 + ["01", "x"]},
         f"transaction.invalid[2500]: {WHOLE}"),
        ({"readPointer": 1, "invalid": ["1", str(MOST + 1), True]},
         f"transaction.invalid[1]: {WHOLE}"),
        ({"readPointer": 1, "invalid": ["1", "\u0663"]}, f"transaction.invalid[1]: {WHOLE}"),
    ],
)  # fmt: skip
def test_a_bad_snapshot_names_its_member(given: Any, said: str) -> None:
    with pytest.raises(MessageError) as caught:
        snapshot_of(given)
    assert str(caught.value) == said


def test_a_snapshot_has_a_bounded_number_of_pointers() -> None:
    half = MAX_SNAPSHOT_POINTERS // 2
    full = {"readPointer": 1, "inProgress": [*range(half)], "invalid": [*range(half)]}
    assert snapshot_of(full).in_progress == frozenset(range(half))
    with pytest.raises(MessageError, match=r"^transaction: has more than 100,000 pointers in its"):
        snapshot_of({**full, "invalid": [*range(half + 1)]})
    with pytest.raises(MessageError, match=r"^transaction: has more than 100,000 pointers in its"):
        snapshot_of({"readPointer": 1, "invalid": ["1"] * (MAX_SNAPSHOT_POINTERS + 1)})
    numbers = range(MAX_SNAPSHOT_POINTERS)
    strings = {"readPointer": 1, "invalid": [*map(str, numbers)]}
    assert snapshot_of(strings).invalid == frozenset(numbers)


@pytest.mark.parametrize(
    "text", ["1,2", "01", "+1", " 1", "1 ", "1.0", "1e3", "", "[1]", "null", "1\n", "\ud800",
             "\u0661", "-", "--1", "9" * 19, "-9223372036854775809", "1" * 5_000, "[" * 100_000],
)  # fmt: skip
def test_each_text_in_a_list_is_one_number(text: str) -> None:
    with pytest.raises(MessageError) as caught:
        snapshot_of({"readPointer": 1, "invalid": ["5", text]})
    assert str(caught.value) == f"transaction.invalid[1]: {WHOLE}"


@examples()
@given(st.lists(st.integers(LEAST, MOST).flatmap(lambda n: st.sampled_from([n, str(n)]))))
@example(["-0", "0", 0])
def test_a_list_holds_numbers_and_digits(listed: list[int | str]) -> None:
    snapshot = snapshot_of({"readPointer": 1, "inProgress": listed})
    assert snapshot.in_progress == frozenset(map(int, listed))


@pytest.mark.parametrize("kind", [int, str])
def test_a_full_snapshot_is_read_in_pieces(kind: type) -> None:
    numbers = range(TEPHRA, TEPHRA + MAX_SNAPSHOT_POINTERS)
    work = parsing_snapshot({"readPointer": 1, "invalid": [*map(kind, numbers)]})
    for _ in range(MAX_SNAPSHOT_POINTERS // 1000):
        next(work)
    with pytest.raises(StopIteration) as end:
        next(work)
    assert end.value.value == Snapshot(1, None, frozenset(), frozenset(numbers))


# The reader's own pointer aside. In this order: invalid; in progress; at most the read pointer.
TABLE = {
    (False, False, True): PASS,
    (False, False, False): HOLD,
    (False, True, True): HOLD,
    (False, True, False): HOLD,
    (True, False, True): SKIP,
    (True, False, False): SKIP,
    (True, True, True): SKIP,
    (True, True, False): SKIP,
}


@pytest.mark.parametrize(("case", "verdict"), TABLE.items())
def test_a_snapshot_judges_by_the_table(case: tuple[bool, bool, bool], verdict: Reading) -> None:
    invalid, in_progress, is_read = case
    snapshot = Snapshot(
        5 if is_read else 4,
        None,
        frozenset({5} if in_progress else ()),
        frozenset({5} if invalid else ()),
    )
    assert snapshot.verdict(5) is verdict
    assert snapshot._replace(write_pointer=5).verdict(5) is PASS
    assert snapshot._replace(write_pointer=6).verdict(5) is verdict


few = st.integers(0, 8)


@examples()
@given(few, st.none() | few, st.frozensets(few), st.frozensets(few), few)
def test_a_pointer_is_visible_as_its_transaction_manager_says(
    read: int, own: int | None, in_progress: frozenset[int], invalid: frozenset[int], pointer: int
) -> None:
    """Tephra: it is the reader's own, or at most the read pointer and in neither list."""
    verdict = Snapshot(read, own, in_progress, invalid).verdict(pointer)
    visible = pointer == own or (pointer <= read and pointer not in in_progress | invalid)
    assert (verdict is PASS) == visible
    assert (verdict is SKIP) == (not visible and pointer in invalid)


# --- Decisions ---


def test_decisions_are_verdicts() -> None:
    judge = by_decisions({1: Decision.COMMITTED, 2: Decision.ABORTED, 3: Decision.TIMED_OUT})
    assert [judge(pointer) for pointer in range(5)] == [HOLD, PASS, SKIP, SKIP, HOLD]


def test_entries_with_pointers_are_read_by_their_verdict() -> None:
    for kind, how in ((EntryKind.DIRECT, PASS), (EntryKind.PUBLISH, Reading.EXPAND)):
        for verdict in (PASS, SKIP, HOLD):
            committed = how if verdict is PASS else verdict
            assert reading(kind, Isolation.READ_COMMITTED, verdict) is committed
            assert reading(kind, Isolation.READ_UNCOMMITTED, verdict) is how
    for each in EntryKind:
        if each not in (EntryKind.DIRECT, EntryKind.PUBLISH):
            for isolation in Isolation:
                assert len({reading(each, isolation, verdict) for verdict in Reading}) == 1


def test_only_markers_of_pointers_decide_pointers() -> None:
    for pointer in (0, 7, MAX_POINTER):
        data = encode_marker(Marker(str(pointer)))
        assert decided_by(EntryKind.COMMIT, data) == (pointer, True)
        assert decided_by(EntryKind.ABORT, data) == (pointer, False)
        assert decided_by(EntryKind.PUBLISH, data) is None
        assert decided_by(EntryKind.BEGIN, data) is None
    ours = encode_marker(Marker(str(FIRST_ID), 3, 2))
    for kind in (EntryKind.COMMIT, EntryKind.ABORT):
        assert decided_by(kind, ours) is None
    for kind in (EntryKind.MESSAGE, EntryKind.DIRECT, EntryKind.VOID):
        assert decided_by(kind, '{"payload":"x"}') is None
    assert decided_by(EntryKind.VOID, "") is None


# --- Rollbacks ---


@examples()
@given(st.sets(st.integers(1, 40)))
def test_runs_have_the_offsets_and_no_hole(offsets: set[int]) -> None:
    runs = runs_of(offsets)
    assert [first + k for first, count in runs for k in range(count)] == sorted(offsets)
    assert all(one + count < other for (one, count), (other, _) in pairwise(runs))


def test_a_run_has_its_first_offset_and_its_length() -> None:
    assert runs_of([7, 3, 4, 5, 9]) == [(3, 3), (7, 1), (9, 1)]
    assert runs_of([]) == []


def test_what_a_rollback_voided_survives_its_text() -> None:
    voided = Voided(str(TEPHRA), [(3, 3), (7, 1)])
    text = encode_voided(voided)
    assert text == f'{{"txn":"{TEPHRA}","runs":[[3,3],[7,1]]}}'
    assert decode_voided(text) == voided
    assert decode_voided("") is None


# --- Errors ---


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (decided(7, Decision.COMMITTED), "pointer 7 has committed in this topic"),
        (decided(7, Decision.ABORTED), "pointer 7 was aborted in this topic"),
        (decided(7, Decision.TIMED_OUT),
         "pointer 7 has timed out (--pointer-timeout) in this topic"),
        (decided(7, None), "pointer 7 is decided in this topic"),
        (stored_before(7),
         "messages: must be empty: messages are stored under pointer 7; publish those first"),
        (nothing_stored(7), "messages: there is none, and none is stored under pointer 7"),
        (too_many_stored(7, 1000, 2000),
         "pointer 7 would have more than 1,000 stored messages or 2,000 bytes of them in this"
         " topic (--txn-max-records, --txn-max-bytes); publish them first"),
    ],
)  # fmt: skip
def test_errors_tell_the_pointer_and_the_way_out(error: Exception, said: str) -> None:
    assert str(error) == said
