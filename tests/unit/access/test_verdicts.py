"""Outcomes are kept up to a bound, and those that leave make room for others."""

from oplogd.web.access.keys.verdicts import Verdicts


def test_the_oldest_leave_and_their_room_is_used_again() -> None:
    verdicts = Verdicts[int](4)
    for number in range(20):
        verdicts.keep(b"%d" % number, number, 2)
        verdicts.keep(b"%d" % number, -number, 2)  # again: it has its room once
    assert verdicts.items() == [(b"18", -18), (b"19", -19)]
    verdicts.forget(b"18")
    verdicts.keep(b"a", 1)
    verdicts.keep(b"b", 2)
    assert [digest for digest, _ in verdicts.items()] == [b"19", b"a", b"b"]
    verdicts.keep(b"large", 3, 5)
    assert verdicts.find(b"large") is None
