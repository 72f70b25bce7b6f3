"""Figures for operators: lag, refused consumers and datagrams, times, numbers of objects."""

import json
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from oplogd.web.figures.metrics import METRICS
from tests.contract.wire.store_kinds import StoreKind, on_one_store
from tests.contract.wire.topics.topics import OPLOG, TopicClient
from tests.kits.contract.wire import (
    JSON,
    SSE,
    RawStream,
    Target,
    fresh_type,
    operation,
    wait_until,
)

Samples = dict[tuple[str, str], float]


def metrics(target: Target) -> Samples:
    """Return the samples by name and by the value of their label, if they have one."""
    text = target.request("GET", "/metrics").body.decode()
    families = text_string_to_metric_families(text)
    return {
        (sample.name, next(iter(sample.labels.values()), "")): sample.value
        for family in families
        for sample in family.samples
        if not sample.name.startswith("oplog_info")
    }


# Metrics without a label that an agent of one worker lacks.
ONLY_OF_SEVERAL = {"oplog_write_wait_seconds"}
# They exist while a log is about to leave a position behind.
ONLY_IN_NEED = {"oplog_position_left_seconds", "oplog_positions_left_seconds"}


def refusals(target: Target) -> dict[str, int]:
    refused: dict[str, int] = target.status()["consumers_refused"]
    found = {
        label: value
        for (name, label), value in metrics(target).items()
        if name == "oplog_consumers_refused_total"
    }
    assert found == refused
    return refused


@on_one_store
def test_an_agent_exports_each_declared_metric_and_no_other(target: Target) -> None:
    for path, body in {
        "/v1/namespaces/ns/topics/figures": {},
        "/v1/consumers/figures": {"log": "ns/figures"},
    }.items():
        target.request("PUT", path, json.dumps(body).encode(), JSON)
    message = json.dumps({"messages": [{"payload": "a"}]}).encode()
    target.request("POST", "/v1/namespaces/ns/topics/figures/publish", message, JSON)
    with target.follow(name="search"):
        assert wait_until(lambda: "oplog_position_lag{" in exported_text(target))
        text = exported_text(target)
    exported = {
        (family.name, family.type, family.documentation, *sorted({*sample.labels} - {"le"}))
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert exported == {
        (each.sample.removesuffix("_total"), each.kind, each.help, *sorted(each.labels))
        for each in METRICS
        if each.labels != ("worker",) and each.sample not in ONLY_OF_SEVERAL | ONLY_IN_NEED
    }


def exported_text(target: Target) -> str:
    return target.request("GET", "/metrics").body.decode()


def grown(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {name: after[name] - before[name] for name in after if after[name] != before[name]}


# --- The consumers ---


@on_one_store
def test_the_lag_of_a_named_consumer_is_reported_under_its_name(target: Target) -> None:
    with (
        target.follow(name="search-1.eu_West"),
        target.follow(name="search-1.eu_West"),
        target.follow(name="b"),
        target.follow(name=""),
        target.follow(),
    ):
        found = metrics(target)
        assert found["oplog_named_consumers", "search-1.eu_West"] == 2
        assert found["oplog_named_consumers", "b"] == 1
        names = {label for name, label in found if name.startswith("oplog_named_")}
        assert names == {"search-1.eu_West", "b"}
        for unit in ("operations", "seconds"):
            assert (
                found[f"oplog_named_consumer_lag_{unit}", "b"]
                == found[f"oplog_consumer_lag_{unit}", ""]
                == 0
            )
        assert found["oplog_consumer_names_left_out", ""] == 0
        status = target.status()
        assert status["consumer_lag"] == {"operations": 0, "seconds": 0}
        assert sorted(consumer["name"] for consumer in status["consumers"]) == [
            "",
            "",
            "b",
            "search-1.eu_West",
            "search-1.eu_West",
        ]
    assert wait_until(lambda: target.status()["clients"] == 0)
    assert not [name for name in metrics(target) if name[0] == "oplog_named_consumers"]


@on_one_store
@pytest.mark.parametrize("name", ["a b", "a/b", "ä", "x" * 101, 'a"', "a\n"])
def test_an_invalid_name_is_refused(target: Target, name: str) -> None:
    before = refusals(target)
    with pytest.raises(AssertionError, match=r"no stream: 400.*name: must be 1 to 100"):
        target.follow(name=name)
    assert grown(before, refusals(target)) == {"bad_request": 1}


@on_one_store
def test_a_consumer_that_reads_nothing_lags_in_metrics_and_status(
    store_kind: StoreKind, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        agent = stack.enter_context(store_kind.agent(tmp_path))
        target = Target.of(agent)
        stack.enter_context(RawStream(target, "/ops?name=stuck", SSE, receive_buffer=4096))
        stack.enter_context(target.follow(name="idle", types=fresh_type()))

        def told() -> bool:
            """Send operations until the connection is full, so that the consumer lags in the
            metrics.
            """
            target.store(*(operation("insert", "a", "thing", "p" * 60_000) for _ in range(20)))
            found = metrics(target)
            largest, stuck, idle = (
                [found[f"oplog_{kind}_lag_{unit}", name] for unit in ("operations", "seconds")]
                for kind, name in (
                    ("consumer", ""),
                    ("named_consumer", "stuck"),
                    ("named_consumer", "idle"),
                )
            )
            return largest == stuck and stuck[0] > 20 and stuck[1] > 0.1 and idle == [0, 0]

        assert wait_until(told)
        assert wait_until(lambda: target.status()["store"]["lag"]["follower"] == 0)

        def is_the_same() -> bool:
            """Compare both, after the kernel has taken its last byte."""
            lag = metrics(target)["oplog_consumer_lag_operations", ""]
            return bool(target.status()["consumer_lag"]["operations"] == lag > 0)

        assert wait_until(is_the_same)


@on_one_store
def test_refused_consumers_are_counted_by_the_reason(store_kind: StoreKind, tmp_path: Path) -> None:
    flags = ("--max-clients", "2", "--max-clients-per-address", "1", "--password", "right")
    right = {**SSE, "Authorization": "Basic OnJpZ2h0"}
    with store_kind.agent(tmp_path, *flags) as agent, ExitStack() as streams:
        target = Target.of(agent)

        def ask(headers: dict[str, str], status: int, path: str = "/ops") -> None:
            assert target.request("GET", path, headers=headers).status == status

        assert set(refusals(target).values()) == {0}
        ask(SSE, 401)
        ask({**SSE, "Authorization": "Basic Ondyb25n"}, 401)
        ask({**SSE, "Cookie": "oplog=old"}, 401)
        ask(SSE, 401, "/ops?token=old")
        ask({"Accept": "text/plain"}, 406)
        ask(right, 400, "/ops?last_event_id=x")
        ask(right, 400, "/ops?since=yesterday")
        ask(right, 400, "/ops?checkpoint=2")
        streams.enter_context(target.follow(None, {**right, "X-Forwarded-For": "192.0.2.1"}))
        ask({**right, "X-Forwarded-For": "192.0.2.1"}, 429)
        streams.enter_context(target.follow(None, {**right, "X-Forwarded-For": "192.0.2.2"}))
        ask({**right, "X-Forwarded-For": "192.0.2.3"}, 503)
        assert refusals(target) == {
            "max_clients": 1,
            "max_clients_per_address": 1,
            "store": 0,
            "password": 1,
            "session": 2,
            "no_password": 1,
            "bad_request": 3,
            "shards": 0,
        }


@on_one_store
def test_a_log_is_read_in_16_numbers_of_shards_at_a_time(target: Target) -> None:
    before = refusals(target)
    for asked in (TopicClient(target, OPLOG), TopicClient(target).create()):
        assert wait_until(lambda: target.status()["clients"] == 0)
        with ExitStack() as streams:
            queries = [f"?shard=0/{total}" for total in range(2, 17)]
            for query in (*queries, "?shard=1/2", ""):
                streams.enter_context(asked.follow(query=query))
            with asked.follow(query="?shard=0/256"):
                for headers in (SSE, {**SSE, "X-Other": "1"}):  # the app answers the second one
                    reply = asked.request("GET", "/stream?shard=0/17", headers=headers)
                    assert (reply.status, reply.header("Oplog-Shard")) == (409, None)
                    assert "in 16 numbers of shards already: 2, 3, 4," in reply.problem()
                for method, path in (
                    ("POST", f"{asked.path}/poll?shard=0/17"),
                    ("GET", "/objects?shard=0/17"),
                ):
                    assert target.request(method, path, b"{}", JSON).status == 200
            assert wait_until(lambda: target.status()["clients"] == 17)
            with asked.follow(query="?shard=0/17"):
                assert asked.request("GET", "/stream?shard=0/256", headers=SSE).status == 409
    assert grown(before, refusals(target)) == {"shards": 6}


def test_fallbacks_are_counted(store_kind: StoreKind, tmp_path: Path) -> None:
    with store_kind.agent(tmp_path, "--ring-size", "16") as agent:
        target = Target.of(agent)
        target.store(*(operation("insert", str(number), "thing") for number in range(40)))
        first = target.status()["store"]["oldest_id"]
        assert wait_until(lambda: target.status()["store"]["lag"]["follower"] == 0)
        with target.follow(first) as late:
            late.take(39)
        with target.follow(f"{first[:12]}{999:012x}") as other:
            other.until("live")
        assert target.status()["fallbacks"] == {"store": 1, "states": 1}
        found = metrics(target)
        assert [found["oplog_fallbacks_total", to] for to in ("store", "states")] == [1, 1]


# --- Times ---


@on_one_store
def test_commits_and_the_time_to_the_consumers_are_measured(target: Target) -> None:
    def counts() -> list[int]:
        status = target.status()
        return [status[name]["count"] for name in ("commit_seconds", "ingest_to_send_seconds")]

    before = counts()
    with target.follow() as stream:
        for number in range(3):
            target.store(
                operation("insert", str(number), "thing"), operation("insert", "b", "thing")
            )
            stream.take(2)
    assert wait_until(lambda: counts() == [count + 3 for count in before]), (before, counts())
    found = metrics(target)
    for name, count in zip(
        ("oplog_commit_seconds", "oplog_ingest_to_send_seconds"), counts(), strict=True
    ):
        assert found[f"{name}_count", ""] == found[f"{name}_bucket", "+Inf"] == count
        assert found[f"{name}_sum", ""] > 0
        buckets = [value for (sample, _), value in found.items() if sample == f"{name}_bucket"]
        assert buckets == sorted(buckets)


@on_one_store
def test_the_turns_of_the_event_loop_are_measured(target: Target) -> None:
    shown = target.status()["loop"]
    assert 0 <= shown["longest_turn_seconds_last_minute"] <= shown["longest_turn_seconds"]
    assert shown["longest_turn_seconds"] < shown["cpu_seconds"]
    found = metrics(target)
    assert found["oplog_loop_cpu_seconds_total", ""] >= shown["cpu_seconds"]
    assert found["oplog_loop_longest_turn_seconds", ""] >= shown["longest_turn_seconds"]
    assert ("oplog_loop_longest_turn_seconds_last_minute", "") in found


# --- Refused datagrams ---


@on_one_store
def test_readers_see_refused_datagrams_with_sender_and_reason(
    store_kind: StoreKind, tmp_path: Path
) -> None:
    with store_kind.agent(tmp_path, "--password", "right") as agent:
        target = Target.of(agent)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for raw in (
                b'{"event":"insert","type":"a/b","id":"1"}',
                b"{}",
                b'{"event":"insert","type":"a","id":"1"}',
            ):
                sender.sendto(raw, target.udp)
            port = sender.getsockname()[1]
        agent.wait_status(events_received=3, events_error=2, datagrams_refused=2)
        assert target.post(b"{}").status == 400
        assert metrics(target)["oplog_datagrams_refused_total", ""] == 2
        assert "refused_datagrams" not in target.status()
        answer = target.request("GET", "/status", headers={"Authorization": "Basic OnJpZ2h0"}).json
        told: list[dict[str, Any]] = answer["refused_datagrams"]
        assert [(each["sender"], each["reason"], each["data"]) for each in told] == [
            (f"127.0.0.1:{port}", "event: is required", "{}"),
            (
                f"127.0.0.1:{port}",
                "type: must not contain '/' or ','",
                '{"event":"insert","type":"a/b","id":"1"}',
            ),
        ]
        assert all(set(each) == {"time", "sender", "reason", "data"} for each in told)
        agent.wait_log(
            f"refusing invalid operations that come by UDP: from 127.0.0.1:{port}: type: must not"
        )
        agent.wait_log("refusing invalid operations that come by HTTP: from 127.0.0.1:")


@on_one_store
def test_refused_bodies_are_counted_by_the_reason(target: Target) -> None:
    before = target.status()["bodies_refused"]
    topic = "/v1/namespaces/ns/topics/counted"
    json = {"Content-Type": "application/json"}
    text = {"Content-Type": "text/plain"}
    for method, path, body, headers, status in (
        ("POST", "/ops", b"{", json, 400),
        ("PUT", topic, b"[", json, 400),
        ("POST", "/ops", b"{}", text, 415),
        ("POST", f"{topic}/poll", b"{}", text, 415),
        ("PUT", topic, b" " * 20_000, json, 413),
        ("GET", "/ops?since=never", b"", SSE, 400),  # it has no body
    ):
        assert target.request(method, path, body, headers).status == status
    after = target.status()["bodies_refused"]
    assert grown(before, after) == {"invalid": 2, "too_large": 1, "type": 2}
    found = metrics(target)
    assert {reason: found["oplog_bodies_refused_total", reason] for reason in after} == after


# --- Objects ---


def test_live_and_deleted_objects_are_counted_apart(store_kind: StoreKind, tmp_path: Path) -> None:
    with store_kind.agent(tmp_path) as agent:
        target = Target.of(agent)
        target.store(*(operation("insert", str(number), "thing") for number in range(5)))
        target.store(
            operation("delete", "0", "thing"),
            operation("delete", "1", "thing"),
            operation("insert", "0", "thing"),
        )

        def objects() -> list[int]:
            store = target.status()["store"]
            return [store[name] for name in ("states", "live", "deleted")]

        assert wait_until(lambda: objects() == [5, 4, 1]), objects()
        found = metrics(target)
        assert [found[f"oplog_store_{name}", ""] for name in ("states", "live", "deleted")] == [
            5,
            4,
            1,
        ]
