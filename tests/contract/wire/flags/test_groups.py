"""Groups of transactions that nobody uses for a long time, at a running agent."""

from pathlib import Path

from tests.contract.wire.store_kinds import EACH_DRIVER, StoreKind, kinds_of_store
from tests.contract.wire.transactions import TransactionClient
from tests.kits.clock.moved import MovedClock
from tests.kits.contract.wire import SSE, RawStream, Target, wait_until

store_kind = kinds_of_store(EACH_DRIVER)

LOGS = "/v1/namespaces/system/topics"
WEEK = 7 * 86_400


def test_an_idle_group_leaves_unless_it_is_followed_and_comes_back(
    store_kind: StoreKind, tmp_path: Path
) -> None:
    clock = MovedClock(tmp_path, is_of_server=True)
    with store_kind.agent(tmp_path, "--topic-cleanup", "200ms", clock=clock) as agent:
        target = Target.of(agent)

        def logs() -> set[str]:
            listed = target.request("GET", LOGS).json
            return {each["name"] for each in listed} - {"oplog"}

        for group in ("idle", "followed"):
            TransactionClient(target, group=group).commit(0)
        assert logs() == {"_txn.idle", "_txn.followed"}
        with RawStream(target, f"{LOGS}/_txn.followed/stream", SSE):
            clock.move(WEEK + 1)
            assert wait_until(lambda: logs() == {"_txn.followed"})
        again = TransactionClient(target, group="idle")
        assert again.commit(0)["commit"]
        assert "_txn.idle" in logs()
        clock.move(WEEK + 1)
        assert wait_until(lambda: logs() == set())
