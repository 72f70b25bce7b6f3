"""Numbers of a key over HTTP: see `once` of a begin."""

from tests.contract.wire.store_kinds import EACH_DRIVER, kinds_of_store, on_one_store
from tests.contract.wire.topics.topics import TopicClient
from tests.contract.wire.transactions import TransactionClient, post, record, said
from tests.kits.contract.wire import JSON, Target, fresh_type

store_kind = kinds_of_store(EACH_DRIVER)

ONCE = "/v1/once"


def test_a_repeated_number_gets_the_first_commit(target: Target) -> None:
    topic, key = TopicClient(target).create(), fresh_type()
    once = {"key": key, "number": 17}
    first, second = (TransactionClient(target, once=once) for _ in range(2))
    assert first.shown()["once"] == once
    first.write(record(topic, 0, "first"))
    second.write(record(topic, 0, "second"), record(topic, 1, "second"))
    done = first.commit(1)
    assert done["txn"] == first.id
    for _ in range(2):
        assert second.commit(2) == done
    assert second.shown()["reason"] == "aborted because another transaction has its number"
    assert [each["payload"] for each in topic.polled(isolation="read_committed")] == ["first"]
    again = post(target, "", {"once": once})
    assert (again.status, again.header("Location")) == (200, f"/v1/txns/{first.id}")
    assert again.json == first.shown() == target.request("GET", f"{ONCE}/{key}").json
    assert again.json["state"] == "committed"
    TransactionClient(target, once={**once, "number": 18}).commit(0)
    assert said(post(target, "", {"once": once}), 409) == (
        f"number 17 of the key {key} is over; the newest is 18"
    )
    assert "has its number" in said(second.post("/commit", {"records": 2}), 409)


def test_keys_are_listed_shown_and_deleted(target: Target) -> None:
    prefix = fresh_type()
    for name in "ba":
        TransactionClient(target, once={"key": prefix + name, "number": 1}).commit(0)

    def listed() -> list[str]:
        found = target.request("GET", ONCE).json
        return [key for each in found if (key := each["once"]["key"]).startswith(prefix)]

    assert listed() == [prefix + "a", prefix + "b"]
    page = target.request("GET", f"{ONCE}?limit=1")
    assert len(page.json) == 1
    after = page.header("Oplog-Next")
    following = target.request("GET", f"{ONCE}?limit=1&after={after}")
    assert following.json[0]["once"]["key"] > page.json[0]["once"]["key"]
    deleted = target.request("DELETE", f"{ONCE}/{prefix}a", None, JSON)
    assert (deleted.status, deleted.body) == (204, b"")
    assert listed() == [prefix + "b"]
    for method in ("GET", "DELETE"):
        assert said(target.request(method, f"{ONCE}/{prefix}a", None, JSON), 404) == (
            f"no transaction has committed with the key {prefix}a"
        )
    assert TransactionClient(target, once={"key": prefix + "a", "number": 1}).commit(0)


@on_one_store
def test_a_wrong_key_is_named(target: Target) -> None:
    for method in ("GET", "DELETE"):
        assert said(target.request(method, f"{ONCE}/a%20b", None, JSON), 400).startswith("key: ")
    wrong = {"once": {"key": "k", "number": 1.5}}
    assert said(post(target, "", wrong), 400).startswith("once.number: must be a whole number")
