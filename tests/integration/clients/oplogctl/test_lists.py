"""Lists of everything at an agent, in the Python client and in ``oplogctl``."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from oplogc.ctl import cli
from oplogc.topics import (
    AsyncTopics,
    ListedPointer,
    Namespace,
    NotAllowed,
    ProtocolError,
    TopicName,
    Topics,
)
from oplogc.topics.calls import lists as calls
from tests.kits.agents.agent import Agent
from tests.kits.clients.topics_of import TopicsOf
from tests.kits.servers.scripted import ScriptedServer, answer

TIME = r"[0-9-]{10}T[0-9:]{8}\.[0-9]{3}Z"
NAMES = ["a/x", "a/y", "b/x", "c/x", "d/x"]


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """Start an agent with five topics, five leases and four open pointers."""
    with Agent(tmp_path_factory.mktemp("agent")) as agent:
        for name in NAMES:
            path = "/v1/namespaces/{}/topics/{}".format(*name.split("/"))
            agent.request("PUT", path)
            if name != "a/y":
                under = {"transactionWritePointer": 7, "messages": ["m"]}
                agent.request("POST", f"{path}/{'store' if name == 'd/x' else 'publish'}", under)
        for name in ("l5", "l4", "l3", "l2", "l1"):
            asked = {"holder": f"of {name}", "ttl_ms": 60_000, "note": "\x1b[31m" * (name == "l1")}
            agent.request("POST", f"/v1/leases/{name}", asked)
        agent.request("DELETE", "/v1/leases/l2", {"holder": "of l2", "term": 1})
        yield agent


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MAX_PAGE", 2)


def printed(agent: Agent, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert cli.main([*arguments, "--url", agent.url]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out.splitlines()


def test_all_pages_of_a_list_are_fetched(agent: Agent, topics_of: TopicsOf) -> None:
    with topics_of(agent.url) as topics:
        found = topics.namespaces()
        assert found == tuple(
            Namespace(*each) for each in [("a", 2), ("b", 1), ("c", 1), ("d", 1), ("system", 1)]
        )
        leases = topics.leases()
        assert [each.name for each in leases] == ["l1", "l2", "l3", "l4", "l5"]
        assert (leases[1].holder, leases[1].expires_in_ms) == (None, 0)
        assert (leases[2].holder, leases[2].term, leases[2].note) == ("of l3", 1, "")
        assert 0 < leases[2].expires_in_ms <= 60_000


def test_pointers_of_all_topics_are_fetched(agent: Agent) -> None:

    with Topics(agent.url) as topics:
        found = topics.pointers.list_all()
    shown = [(str(each.topic), each.pointer, each.state, each.holds) for each in found]
    assert shown == [
        *((name, 7, "open", True) for name in ("a/x", "b/x", "c/x")),
        ("d/x", 7, "open", False),
    ]


def test_the_commands_print_tables_and_json(
    agent: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(agent, capsys, "namespace", "list") == [
        "NAMESPACE  TOPICS", "a          2", "b          1", "c          1", "d          1",
        "system     1",
    ]  # fmt: skip
    assert printed(agent, capsys, "namespaces") == printed(agent, capsys, "namespace", "list")
    assert json.loads(printed(agent, capsys, "namespace", "list", "--json")[0]) == {
        "name": "a",
        "topics": 2,
    }
    titles, *rows = printed(agent, capsys, "pointer", "list")
    assert titles.split() == ["TOPIC", "POINTER", "STATE", "HOLDS", "BEGUN", "EXPIRES"]
    assert len(rows) == 4
    assert re.fullmatch(rf"a/x +7 +open +yes +{TIME} +{TIME}", rows[0])
    assert re.fullmatch(rf"d/x +7 +open +no +{TIME} +{TIME}", rows[3])
    one = json.loads(printed(agent, capsys, "pointer", "list", "--json")[3])
    assert (one.pop("begun_at") < one.pop("expires_at"), one) == (
        True,
        {
            "namespace": "d", "topic": "x", "pointer": "7", "state": "open", "holds": False,
            "published": False,
        },
    )  # fmt: skip
    titles, *rows = printed(agent, capsys, "lease", "list")
    assert titles.split() == ["LEASE", "HOLDER", "TERM", "LEFT", "NOTE"]
    assert re.fullmatch(r"l1 +of l1 +1 +[0-9]{2}\.[0-9]s +\\x1b\[31m", rows[0])
    assert re.fullmatch(r"l2 +- +1 +- +-", rows[1])
    one = json.loads(printed(agent, capsys, "lease", "list", "--json")[1])
    assert one == {"name": "l2", "holder": None, "term": 1, "expires_in_ms": 0, "note": ""}


def test_the_topics_of_all_namespaces_are_listed_unless_one_is_named(
    agent: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(agent, capsys, "topic", "list")
    assert [line.partition(" ")[0] for line in lines] == [*NAMES, "system/oplog"]
    lines = printed(agent, capsys, "topic", "list", "a")
    assert [line.partition(" ")[0] for line in lines] == ["a/x", "a/y"]


def test_answers_of_other_servers_are_no_lists(topics_of: TopicsOf) -> None:
    for body in ("{}", "[5]", '[{"name":5,"topics":1}]', '[{"name":"a"}]', "nonsense"):
        with (
            ScriptedServer([answer("200 OK", body)]) as server,
            topics_of(server.url) as topics,
            pytest.raises(ProtocolError, match="no agent with lists"),
        ):
            topics.namespaces()
    endless = answer("200 OK", "[]", "Oplog-Next: again")
    with (
        ScriptedServer([endless, endless]) as server,
        topics_of(server.url) as topics,
        pytest.raises(ProtocolError, match="its pages do not end"),
    ):
        topics.leases()
    refused = answer("401 Unauthorized", '{"detail":"needs the password"}')
    with (
        ScriptedServer([refused]) as server,
        topics_of(server.url) as topics,
        pytest.raises(NotAllowed),
    ):
        topics.leases()


async def test_a_pointer_of_a_later_agent_may_have_another_state_and_no_time_out() -> None:
    listed = (
        '[{"namespace":"n","topic":"t","pointer":"5","state":"timed-out","holds":false,'
        '"begun_at":"2024-11-27T10:00:00.000Z","published":true}]'
    )
    with ScriptedServer([answer("200 OK", listed)]) as server:
        async with AsyncTopics(server.url) as topics:
            found = await topics.pointers.list_all()
    begun = datetime(2024, 11, 27, 10, tzinfo=UTC)
    name = TopicName("n", "t")
    assert found == (ListedPointer(name, 5, "timed-out", False, begun, None, True),)
