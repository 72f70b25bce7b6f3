"""Random calls on two agents' topics, transactions and pointers, compared after every call.

All kinds of readers are compared, of both isolations and with snapshots: reads of whole topics and
from any id on, polls from the oldest message, polls that resume at the last message they got, and
streams that are cut and resume.
"""

from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from oplogd.model.pointer import Decision
from tests.contract.store.pointer_machine import TIMEOUT_MS, PointerMachine
from tests.contract.store.transaction_machine import TransactionMachine
from tests.kits.models.properties import examples
from tests.kits.store.kits import Kits
from tests.kits.stream.worlds import WatchedConsumer


class Sample(NamedTuple):
    """``share``: of the examples of other property tests. ``calls``: of each example."""

    machine: type[TransactionMachine]
    share: float
    calls: int


# Some stores are slow.
SAMPLES = {
    "memory": Sample(PointerMachine, 0.2, 50),
    "sqlite": Sample(PointerMachine, 0.06, 50),
    "sqlite-workers": Sample(PointerMachine, 0.04, 50),
    "mongo-plain": Sample(PointerMachine, 0.02, 15),
}


@pytest.mark.thorough
@pytest.mark.parametrize("txn_kits", SAMPLES, indirect=True)
def test_all_readers_see_what_the_lists_have(
    txn_kits: Kits, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oplogd.stream.hub.StreamConsumer", WatchedConsumer)
    machine, share, calls = SAMPLES[request.node.callspec.params["txn_kits"]]

    class OfStore(machine):  # type: ignore[valid-type, misc]
        kits = staticmethod(txn_kits)

    run_state_machine_as_test(
        OfStore, settings=settings(examples(share), stateful_step_count=calls)
    )


@pytest.mark.parametrize("txn_kits", SAMPLES, indirect=True)
def test_the_model_follows_a_sweep_that_removes_a_decision_and_a_pointer_that_begins_again(
    txn_kits: Kits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oplogd.stream.hub.StreamConsumer", WatchedConsumer)

    class OfStore(PointerMachine):
        kits = staticmethod(txn_kits)

    machine = OfStore()
    machine.create_all()
    machine.create("short", 5, 0)
    machine.publish_direct(0, 0, 1, None, TIMEOUT_MS, 0)
    machine.decide(0, {0}, Decision.COMMITTED, 1, 1)
    for _ in range(2):
        machine.wait(901_000)
        machine.sweep(0)
        machine.pointers_are_open_or_decided()
        machine.readers_see_what_the_lists_have()
    machine.publish_direct(0, 0, 1, None, TIMEOUT_MS, 1)
    machine.pointers_are_open_or_decided()
    machine.readers_see_what_the_lists_have()
    machine.teardown()
