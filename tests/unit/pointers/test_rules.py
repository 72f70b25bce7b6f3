"""Reports as they are sent, and pointers and entries as they are shown."""

import json
from typing import Any

import pytest

from oplogd.config.settings import Settings
from oplogd.config.values import pointer_timeout
from oplogd.errors import MessageError
from oplogd.model.isolation import EntryKind
from oplogd.model.message_id import stamp
from oplogd.model.names import TopicName
from oplogd.model.pointer import MAX_POINTER, Decision, Voided, encode_voided
from oplogd.model.transaction import FIRST_ID, Marker, encode_marker
from oplogd.store.pointers import OpenPointer
from oplogd.store.topics import MAX_OFFSET, TopicEntry
from oplogd.topics.pointers.rules import entry_shown, parse_after, parse_report, pointer_shown

MS = 1_700_000_000_123
TIME = "2023-11-14T22:13:20.123Z"
MESSAGE = '{"payload":"é"}'


def report(*topics: Any) -> bytes:
    return json.dumps({"topics": topics}).encode()


def test_a_report_names_each_topic_once_in_its_order() -> None:
    names = [TopicName("b", "t"), TopicName("a", "t")]
    assert parse_report(report("b/t", "a/t", "b/t")) == names
    most = parse_report(report(*(f"ns/{k}" for k in range(1000))))
    assert (len(most), most[-1]) == (1000, TopicName("ns", "999"))


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "topics: is required"),
        (b"{}", "topics: is required"),
        (b'{"topics": null}', "topics: is required"),
        (b'{"topics": "ns/t"}', "topics: must be a list of 1 to 1,000 topics"),
        (report(), "topics: must be a list of 1 to 1,000 topics"),
        (report(*["ns/t"] * 1001), "topics: must be a list of 1 to 1,000 topics"),
        (report("ns/t", "t"), "topics[1]: must be NAMESPACE/TOPIC, "),
        (report("ns/t/x"), "topics[0]: must be NAMESPACE/TOPIC, "),
        (report("ns/t", 5), "topics[1]: must be NAMESPACE/TOPIC, "),
        (report(None), "topics[0]: is required"),
        (report("ns/t", "system/oplog"), "topics[1]: system/oplog takes operations in transac"),
        (report("system/_txn.g"), "topics[0]: system/_txn.g is the commit log of a group"),
        (b'{"topics": ["ns/t"], "more": 5}', "more: is not a member of this request"),
        (b"[]", "body: must be an object"),
        (b"{", "body: is not valid JSON"),
    ],
)
def test_a_bad_report_names_its_member(body: bytes, sentence: str) -> None:
    with pytest.raises(MessageError) as raised:
        parse_report(body)
    assert str(raised.value).startswith(sentence)


@pytest.mark.parametrize(
    ("given", "after"), [(None, None), ("0", 0), (str(MAX_OFFSET), MAX_OFFSET)]
)
def test_entries_begin_after_an_offset(given: str | None, after: int | None) -> None:
    assert parse_after(given) == after


@pytest.mark.parametrize("given", ["", "-1", "1.5", "x", str(MAX_OFFSET + 1), "9" * 5000, "²"])
def test_a_bad_offset_is_refused(given: str) -> None:
    with pytest.raises(MessageError, match=r"^after: must be an offset: .* 0 to 1099511627775$"):
        parse_after(given)


def test_a_pointer_is_shown_as_text_with_its_times() -> None:
    shown = pointer_shown(OpenPointer(MAX_POINTER, MS, MS + 900_000, has_entries=False))
    assert shown == {
        "pointer": "4611686018427387903",
        "begun_at": TIME,
        "expires_at": "2023-11-14T22:28:20.123Z",
        "published": False,
    }


def shown(
    kind: str, data: str, pointer: int | None = None, **decisions: Decision
) -> dict[str, Any]:
    """Return the members of an entry that differ by its kind. ``decisions``: of ``p7``."""
    entry = TopicEntry(9, MS, kind, data, 3, 0, pointer)
    members = entry_shown(entry).members({int(name[1:]): each for name, each in decisions.items()})
    assert members.pop("offset") == 9
    assert members.pop("id") == f"{stamp(MS, 3):020x}" == "0000018bcfe5687b0003"
    assert members.pop("time") == TIME
    assert members.pop("kind") == kind
    assert members.pop("bytes") == len(data.encode())
    return members


def marker(id_: int, records: int = 0) -> str:
    return encode_marker(Marker(str(id_), records))


def test_entries_without_a_pointer_show_their_kind_and_their_transaction() -> None:
    own = str(FIRST_ID)
    assert shown(EntryKind.MESSAGE, MESSAGE) == {}
    assert shown(EntryKind.DEFERRED, MESSAGE) == {}
    assert shown(EntryKind.VOID, "") == {}
    assert shown("newer", "?") == {}
    assert shown(EntryKind.BEGIN, marker(FIRST_ID)) == {"txn": own}
    assert shown(EntryKind.COMMIT, marker(FIRST_ID, 5)) == {"txn": own, "records": 5}
    assert shown(EntryKind.ABORT, marker(FIRST_ID)) == {"txn": own}


def test_entries_of_a_pointer_show_it_and_its_state() -> None:
    assert shown(EntryKind.DIRECT, MESSAGE, 7) == {"pointer": "7", "state": "open"}
    for decision, state in (
        (Decision.COMMITTED, "committed"),
        (Decision.ABORTED, "aborted"),
        (Decision.TIMED_OUT, "timed out"),
    ):
        members = {"pointer": "7", "state": state}
        assert shown(EntryKind.DIRECT, MESSAGE, 7, p7=decision) == members
        assert shown(EntryKind.PUBLISH, marker(7, 2), 7, p7=decision) == members | {"records": 2}
        assert shown(EntryKind.COMMIT, marker(7), p7=decision) == members
        assert shown(EntryKind.ABORT, marker(7), p7=decision) == members
        voided = encode_voided(Voided("7", [(1, 2), (5, 1)]))
        assert shown(EntryKind.VOID, voided, p7=decision) == members | {"voided": 3}
    assert shown(EntryKind.DIRECT, MESSAGE, 0, p7=Decision.COMMITTED)["state"] == "open"


def test_the_flag_has_the_bounds_of_a_pointers_time_out() -> None:
    assert Settings().pointer_timeout == 900
    assert pointer_timeout("1") == 1
    assert pointer_timeout("2592000") == pointer_timeout("30d") == 2_592_000
    for given in ("0", "999ms", "1.5", "2592001", "31d", "x"):
        with pytest.raises(ValueError, match=r"duration of at least 1s and at most 30d|whole"):
            pointer_timeout(given)
