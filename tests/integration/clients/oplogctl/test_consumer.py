"""``oplogctl consumer``: named consumers at a real agent."""

import json
import re
from collections.abc import Iterator

import pytest

from oplogc.ctl import cli
from oplogc.ctl.output import show
from oplogc.topics import NamedConsumer
from oplogc.topics.calls.consumers import ShardStatus
from tests.kits.agents.agent import Agent
from tests.kits.servers.scripted import ScriptedServer, answer

TIME = r"[0-9-]{10}T[0-9:]{8}\.[0-9]{3}Z"


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with Agent(tmp_path_factory.mktemp("agent")) as agent:
        agent.request("PUT", "/v1/namespaces/shop/topics/orders")
        messages = [{"payload": str(number), "key": str(number)} for number in range(4)]
        agent.request("POST", "/v1/namespaces/shop/topics/orders/publish", {"messages": messages})
        yield agent


@pytest.fixture
def run(agent: Agent, capsys: pytest.CaptureFixture[str]) -> Iterator["Run"]:
    yield Run(agent, capsys)
    for each in agent.request("GET", "/v1/consumers").json:
        agent.request("DELETE", f"/v1/consumers/{each['name']}")


class Run:
    def __init__(self, agent: Agent, capsys: pytest.CaptureFixture[str]) -> None:
        self._url = agent.url
        self._capsys = capsys

    def __call__(self, *arguments: str, code: int = 0) -> list[str]:
        """Return the lines of stdout, or the line of stderr after a failure."""
        assert cli.main(["consumer", *arguments, "--url", self._url]) == code
        out, err = self._capsys.readouterr()
        assert not (out if code else err)
        return (err if code else out).splitlines()


def test_create_shows_the_consumer_and_its_shards(run: Run) -> None:
    lines = run("create", "bill", "shop/orders", "--start", "copy", "--shards", "2")
    first = rf"bill log=shop/orders types=- parents=- isolation=read_committed created={TIME}"
    assert re.fullmatch(first, lines[0])
    assert lines[1].split() == ["SHARD", "POSITION", "TERM", "READER", "ACKNOWLEDGED", "LAG"]
    for number, line in enumerate(lines[2:]):
        assert re.fullmatch(rf"{number} +0 +[0-9]+ +- +- +~?[0-4](| \([0-9.]+ s\))", line)
    assert run("create", "bill", "shop/orders", "--shards", "2")[0] == lines[0]
    assert run("create", "bill", "shop/orders", code=1) == [
        "oplogctl: the consumer bill exists with other settings; delete it, or choose another name"
        " (HTTP 409)"
    ]


def test_the_settings_of_the_oplog(run: Run) -> None:
    command = ["create", "search", "system/oplog", "--type", "video", "--type", "comment"]
    lines = run(*command, "--parent", "user/ada")
    assert lines[0].startswith(
        "search log=system/oplog types=comment,video parents=user/ada isolation=- created="
    )
    shown = json.loads(run("show", "search", "--json")[0])
    assert shown["types"] == ["comment", "video"]
    assert shown["shards"][0]["acknowledged"] is None
    assert set(shown["shards"][0]) == {
        "shard", "position", "term", "reader", "acknowledged", "lag", "lag_seconds", "estimated",
        "left_seconds",
    }  # fmt: skip


def test_list_seek_and_delete(agent: Agent, run: Run) -> None:
    settings = {"log": "shop/orders", "isolation": "read_uncommitted", "start": "copy"}
    assert agent.request("PUT", "/v1/consumers/bill", settings).status == 201
    with NamedConsumer(agent.url, "bill") as consumer:
        for event in consumer:
            if getattr(event, "text", "") == "2":
                consumer.stop()
    shown = json.loads(run("show", "bill", "--json")[0])
    assert shown["shards"][0]["position"] == consumer.position
    assert re.fullmatch(TIME, shown["shards"][0]["acknowledged"])
    assert re.fullmatch(
        rf"0 +{consumer.position}  [0-9]+ +127\.0\.0\.1:[0-9]+  {TIME}  ~?1 \(.* s\)",
        run("show", "bill")[2],
    )
    moved = run("seek", "bill", "10m", "--shard", "0", "--json")
    assert re.fullmatch("[0-9]{13}", json.loads(moved[0])["shards"][0]["position"])
    assert run("seek", "bill", "copy")[2].split()[:2] == ["0", "0"]
    assert run("seek", "bill", consumer.position)[2].split()[1] == consumer.position
    titles, row = run("list")
    assert titles.split() == ["CONSUMER", "LOG", "TYPES", "PARENTS", "ISOLATION", "CREATED"]
    assert re.fullmatch(rf"bill +shop/orders +- +- +read_uncommitted +{TIME}", row)
    assert json.loads(run("list", "--json")[0])["log"] == "shop/orders"
    assert run("delete", "bill") == ["bill is deleted"]
    assert run("list") == []
    assert run("show", "bill", code=1)[0].startswith("oplogctl: ")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["show", "a/b"], "NAME: name: give 1 to 100"),
        (["create", "a", "b c"], "LOG: 'b c' is not a topic"),
        (["create", "a", "t", "--shards", "257"], "--shards: '257' is more than 256"),
        (["create", "a", "t", "--start", "soon"], "--start: 'soon' is neither"),
        (["create", "a", "t", "--isolation", "none"], "--isolation: 'none' is not an isolation"),
        (["create", "a", "system/oplog", "--type", ""], "--type: must not be empty"),
        (["create", "a", "system/oplog", "--parent", ""], "--parent: must not be empty"),
        (["seek", "a", "now", "--shard", "256"], "--shard: '256' is not the number of a shard"),
        (["seek", "a", ""], "POSITION: '' is neither"),
        (["seek", "a"], "POSITION"),
    ],
)
def test_a_bad_value_names_its_argument(run: Run, arguments: list[str], sentence: str) -> None:
    assert sentence in run(*arguments, code=2)[0]


def test_a_delete_whose_answer_was_lost_is_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    gone = answer("404 Not Found", '{"detail":"there is no consumer bill"}')
    with ScriptedServer([None, gone]) as server:
        command = ["consumer", "delete", "bill", "--url", server.url]
        assert cli.main(command) == 0
        assert [each.head.split(" HTTP")[0] for each in server.requests] == [
            "DELETE /v1/consumers/bill"
        ] * 2
        assert cli.main(command) == 1
    assert "there is no consumer bill (HTTP 404)" in capsys.readouterr().err


def test_answers_of_other_servers_are_no_consumers(capsys: pytest.CaptureFixture[str]) -> None:
    for body in ("{}", "[]", '{"name":"a"}', "nonsense"):
        with ScriptedServer([answer("200 OK", body)]) as server:
            assert cli.main(["consumer", "show", "a", "--url", server.url]) == 1
        assert "is no agent with named consumers: its answer" in capsys.readouterr().err


def test_the_two_commands_name_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    for command, other in (("consumers", "consumer"), ("consumer", "consumers")):
        assert cli.main([command, "--help"]) == 0
        assert f"`oplogctl {other}`" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("lag", "seconds", "left", "cell"),
    [
        (0, 0.0, None, "0"),
        (5, 2.0, None, "5 (2.0 s)"),
        (5, 2.0, 900.4, "5 (2.0 s), leaves in 900 s"),
    ],
)
def test_a_lag_tells_when_its_oldest_entry_leaves_the_log(
    lag: int, seconds: float, left: float | None, cell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show([ShardStatus(1, "0", 3, "", None, lag, seconds, False, left)], False)
    assert capsys.readouterr().out.splitlines()[-1].endswith(f"  {cell}")
