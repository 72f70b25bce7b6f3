import pytest

from oplogd.errors import MessageError
from oplogd.model.isolation import EntryKind, Reading, isolation_of, reading
from oplogd.model.transaction import Isolation

PASS, SKIP, EXPAND, HOLD = Reading.PASS, Reading.SKIP, Reading.EXPAND, Reading.HOLD
UNCOMMITTED, COMMITTED = Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED

READINGS = [
    # kind, uncommitted readers, committed readers
    ("message", PASS, PASS),
    ("direct", PASS, HOLD),
    ("publish", EXPAND, HOLD),
    ("deferred", PASS, SKIP),
    ("commit", SKIP, EXPAND),
    ("late", SKIP, PASS),
    ("abort", SKIP, SKIP),
    ("begin", SKIP, SKIP),
    ("void", SKIP, SKIP),
]


@pytest.mark.parametrize(("kind", "uncommitted", "committed"), READINGS)
def test_an_entry_is_read_by_its_kind_and_the_isolation_of_the_reader(
    kind: str, uncommitted: Reading, committed: Reading
) -> None:
    assert reading(kind, UNCOMMITTED) is uncommitted
    assert reading(kind, COMMITTED) is committed
    assert reading(EntryKind(kind), COMMITTED) is committed


def test_the_table_names_every_kind() -> None:
    assert {kind for kind, _, _ in READINGS} == {*EntryKind}


@pytest.mark.parametrize(("kind", "visible"), [("direct", PASS), ("publish", EXPAND)])
def test_a_committed_reader_judges_the_pointer_of_an_entry(kind: str, visible: Reading) -> None:
    assert reading(kind, COMMITTED, PASS) is visible
    assert reading(kind, COMMITTED, SKIP) is SKIP
    assert reading(kind, COMMITTED, HOLD) is HOLD


@pytest.mark.parametrize("verdict", [PASS, SKIP, HOLD])
@pytest.mark.parametrize("kind", EntryKind)
def test_a_verdict_counts_for_committed_readers_and_for_kinds_with_a_pointer_only(
    kind: EntryKind, verdict: Reading
) -> None:
    assert reading(kind, UNCOMMITTED, verdict) is reading(kind, UNCOMMITTED)
    if kind not in (EntryKind.DIRECT, EntryKind.PUBLISH):
        assert reading(kind, COMMITTED, verdict) is reading(kind, COMMITTED)


@pytest.mark.parametrize("isolation", Isolation)
@pytest.mark.parametrize("kind", ["later", "", "MESSAGE"])
def test_kinds_of_a_newer_agent_are_skipped(kind: str, isolation: Isolation) -> None:
    assert reading(kind, isolation) is SKIP


@pytest.mark.parametrize("isolation", Isolation)
def test_an_isolation_is_given_by_its_name(isolation: Isolation) -> None:
    assert isolation_of(str(isolation)) is isolation


@pytest.mark.parametrize("given", ["", "committed", "READ_COMMITTED", None, True, 1, [], {}])
def test_another_isolation_is_refused_with_the_names_of_both(given: object) -> None:
    with pytest.raises(MessageError) as error:
        isolation_of(given)
    assert str(error.value) == "isolation: must be read_uncommitted or read_committed"
