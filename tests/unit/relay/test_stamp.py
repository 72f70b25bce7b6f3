"""The numbers of marks in the stamps of a leader."""

from uuid import UUID

import pytest

from oplog_relay.model.errors import OutboxError
from oplog_relay.model.stamp import leader_part, stamp, stamps

LEADER = UUID("4ffe2e3e-a1d3-4ee8-ac0e-b9bee02d8a12")


def test_stamps_of_a_leader_begin_alike_and_end_with_the_number_of_the_mark() -> None:
    first, last = stamps(LEADER)
    assert stamp(LEADER, 255) == UUID("4ffe2e3e-a1d3-4ee8-ac0e-0000000000ff")
    assert (stamp(LEADER, 0), stamp(LEADER, 2**48 - 1)) == (first, last)
    assert leader_part(str(first)) == leader_part(str(last)) == leader_part(str(LEADER))


@pytest.mark.parametrize("mark", [-1, 2**48, 2**64])
def test_a_number_that_would_be_the_stamp_of_another_leader_is_refused(mark: int) -> None:
    with pytest.raises(OutboxError, match=rf"^mark: {mark} is not from 0 to 281474976710655$"):
        stamp(LEADER, mark)
