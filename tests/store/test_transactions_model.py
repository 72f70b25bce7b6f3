"""Random calls on two agents' topics, transactions and pointers, compared after every call.

All kinds of readers are compared, of both isolations and with snapshots: reads of whole topics and
from any id on, polls from the oldest message, polls that resume at the last message they got, and
streams that are cut and resume.
"""

from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.kits.models.properties import examples
from tests.store.kits import Kits
from tests.store.pointer_machine import PointerMachine
from tests.store.transaction_machine import TransactionMachine
from tests.stream.worlds import WatchedConsumer


class Sample(NamedTuple):
    """``share``: of the examples of other property tests. ``calls``: of each example."""

    machine: type[TransactionMachine]
    share: float
    calls: int


# Some stores are slow.
SAMPLES = {
    "memory": Sample(PointerMachine, 0.4, 50),
    "sqlite": Sample(PointerMachine, 0.05, 50),
    "mongo-plain": Sample(PointerMachine, 0.01, 15),
}


@pytest.mark.parametrize("txn_kits", SAMPLES, indirect=True)
def test_all_readers_see_what_the_lists_have(
    txn_kits: Kits, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oplogd.stream.hub.Consumer", WatchedConsumer)
    machine, share, calls = SAMPLES[request.node.callspec.params["txn_kits"]]

    class OfStore(machine):  # type: ignore[valid-type, misc]
        kits = staticmethod(txn_kits)

    run_state_machine_as_test(
        OfStore, settings=settings(examples(share), stateful_step_count=calls)
    )
