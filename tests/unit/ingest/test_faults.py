"""The faults of a request: how many of them an answer names."""

import msgspec

from oplogd.decode.faults import MAX_NAMED, MAX_NAMED_BYTES, Faults
from oplogd.ingest.operations import BadLine


def faults_of(field: str) -> Faults[BadLine]:
    faults: Faults[BadLine] = Faults()
    for line in range(2 * MAX_NAMED):
        faults.add(BadLine(line, field, "is not a member"))
    assert faults.count == 2 * MAX_NAMED
    assert [each.line for each in faults.named] == [*range(len(faults.named))]
    return faults


def test_short_faults_are_named_up_to_their_number() -> None:
    assert len(faults_of("a").named) == MAX_NAMED


def test_long_faults_are_named_up_to_their_bytes() -> None:
    named = faults_of("\x01" * 100).named
    size = sum(len(msgspec.json.encode(each)) for each in named)
    assert size <= MAX_NAMED_BYTES < size * (len(named) + 1) / len(named)


def test_the_first_fault_is_always_named() -> None:
    assert len(faults_of("a" * MAX_NAMED_BYTES).named) == 1
