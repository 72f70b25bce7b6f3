"""The documents agree with the code: generated parts are current, and commands run.

With OPLOG_UPDATE_DOCS=1 the generated parts are written again.
"""

import ast
import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import click
import pytest

from oplog_kit.command.flags import Flag, flags_of
from oplog_sync.settings import JobSettings
from oplogc.ctl.commands.consumer import consumer
from oplogc.ctl.commands.lists import lease, namespace
from oplogc.ctl.commands.pointer import pointer
from oplogc.ctl.commands.send import send
from oplogc.ctl.commands.txn import txn
from oplogc.ctl.status.command import consumers, status
from oplogc.ctl.token.command import token
from oplogc.ctl.topic.command import topic
from oplogc.tail.settings import FLAGS
from oplogd import server
from oplogd.agent import Agent as Parts
from oplogd.config.settings import Settings
from oplogd.model.operation import EVENTS
from oplogd.web.app import create_web
from oplogd.web.figures.metrics import METRICS
from tests.kits.agents.agent import DEADLINE, Agent, Event, fold
from tests.kits.clients.restart import agent_on
from tests.kits.documents import pages
from tests.kits.paths import ROOT
from tests.kits.servers.ports import free_port

# Error -> status of the answer to it.
STATUS_OF = {
    "FilterError": 400,
    "MessageError": 400,
    "MessageTooLargeError": 413,
    "OperationError": 400,
    "PositionError": 400,
    "TopicError": 400,
    "TopicExistsError": 409,
    "TopicNotFoundError": 404,
    "TooLargeError": 413,
    "TooManyShardsError": 409,
    "TransactionConflictError": 409,
    "TransactionNotFoundError": 404,
    "TransactionTooLargeError": 413,
    "QueueFullError": 503,
    "NoRoomError": 503,
}


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with Agent(tmp_path_factory.mktemp("agent")) as agent:
        yield agent


def flags() -> str:
    return table(flags_of(Settings))


def sync_flags() -> str:
    return table(flags_of(JobSettings))


def tail_flags() -> str:
    rows = ["| flag | variable | |", "|---|---|---|"]
    for flag in FLAGS:
        names = f"{flag.name}, {flag.short}" if flag.short else flag.name
        metavar = (flag.metavar or "").replace("|", "\\|")
        rows.append(f"| `{f'{names} {metavar}'.strip()}` | `{flag.variable}` | {flag.help} |")
    return "\n".join(rows)


def ctl_flags() -> str:
    """Return a table of the commands with their own flags, and one of the flags that most have."""
    groups = (topic, consumer, txn, pointer, lease, namespace, token)
    commands: list[tuple[str, click.Command]] = [("", each) for each in (status, consumers, send)]
    commands += [(f"{group.name} ", each) for group in groups for each in group.commands.values()]
    asking = [command for _, command in commands if command not in token.commands.values()]
    shared = set.intersection(*({each.name for each in command.params} for command in asking))
    rows = ["| command | flag | |", "|---|---|---|"]
    for prefix, command in commands:
        pieces = command.collect_usage_pieces(click.Context(command))[1:]
        usage = " ".join([command.name or "", *pieces]).replace("|", "\\|")
        rows.append(f"| `{prefix}{usage}` | | {summary(command)} |")
        own = [
            each for each in options(command) if command not in asking or each.name not in shared
        ]
        rows += [ctl_flag(each) for each in own]
    rows += ["", "| flag of every command but `token` | variable | |", "|---|---|---|"]
    for each in options(asking[0]):
        if each.name in shared:
            names = [each.envvar] if isinstance(each.envvar, str) else each.envvar or ()
            cells = ctl_flag(each).split(" | ")
            variables = ", ".join(f"`{name}`" for name in names)
            rows.append(f"| {cells[1]} | {variables} | {cells[2]}")
    return "\n".join(rows)


def summary(command: click.Command) -> str:
    return (command.help or "").partition("\n\n")[0].replace("\n", " ")


def options(command: click.Command) -> list[click.Option]:
    return [each for each in command.params if isinstance(each, click.Option)]


def ctl_flag(option: click.Option) -> str:
    names = f"{', '.join(option.opts)} {option.metavar or ''}".strip().replace("|", "\\|")
    default = f" Default: {option.default}." if isinstance(option.default, str) else ""
    return f"| | `{names}` | {option.help}{default} |"


def table(flags: Sequence[Flag]) -> str:
    """Return a table for each subject."""
    blocks = []
    for subject, of_subject in groupby(flags, lambda flag: flag.subject):
        blocks.append(f"**{subject}**\n\n| flag | variable | default | |\n|---|---|---|---|")
        for flag in of_subject:
            name = f"{flag.name} {flag.metavar or ''}".strip().replace("|", "\\|")
            default = f"`{flag.default}`" if flag.metavar and flag.default else ""
            text = flag.help.replace("|", "\\|")
            blocks[-1] += f"\n| `{name}` | `{flag.variable}` | {default} | {text} |"
    return "\n\n".join(blocks)


def endpoints() -> str:
    rows = ["| | | answers |", "|---|---|---|"]
    api = asyncio.run(described_api())
    for path, methods in api["paths"].items():
        for method, described in methods.items():
            answers = ", ".join(sorted(described["responses"]))
            rows.append(f"| `{method.upper()} {path}` | {described['summary']} | {answers} |")
    return "\n".join(rows)


async def described_api() -> dict[str, Any]:
    parts = Parts(settings := Settings(), server.make_store(settings), [])
    return create_web(parts).app.openapi()


def errors() -> str:
    found = {
        pair
        for path in sorted((ROOT / "oplogd").rglob("*.py"))
        for pair in sentences(ast.parse(path.read_text()))
    }
    rows = [f"| {status} | {sentence} |" for status, sentence in sorted(found)]
    return "\n".join(["| status | `detail` |", "|---|---|", *rows])


def sentences(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield status and sentence of every error that this code creates with a text of its own."""
    texts = named_texts(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == "Rules":
            defaults = (each.value for each in node.body if isinstance(each, ast.AnnAssign))
            yield from (
                (400, f"…: {each.value!s}") for each in defaults if isinstance(each, ast.Constant)
            )
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        name, values = node.func.id, [words(argument, texts) for argument in node.args]
        if name == "Rules":
            yield from rules(node, texts)
        elif name == "Problem" and isinstance(node.args[0], ast.Constant) and values[1] != "…":
            yield int(values[0]), values[1]
        elif name in STATUS_OF and values[-1] != "…":
            yield STATUS_OF[name], ": ".join(values)


def rules(call: ast.Call, texts: Mapping[str, ast.expr]) -> Iterator[tuple[int, str]]:
    """Yield status and sentence for each rule of a call of ``Rules``."""
    pairs = [("…", words(each.value, texts)) for each in call.keywords]
    for each in call.args:
        if isinstance(each, ast.Dict):
            members = zip(each.keys, each.values, strict=True)
            pairs += [(words(key, texts), words(value, texts)) for key, value in members if key]
    yield from ((400, f"{field}: {reason}") for field, reason in pairs if reason != "…")


def named_texts(tree: ast.AST) -> dict[str, ast.expr]:
    """Return the texts that have a name in a module."""
    return {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.JoinedStr)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id.isupper()
    }


def words(node: ast.expr, texts: Mapping[str, ast.expr]) -> str:
    """Return the text of an expression, with an ellipsis for each variable part."""
    if isinstance(node, ast.Name) and node.id in texts:
        return words(texts[node.id], {})
    if isinstance(node, ast.Constant):
        return str(node.value).replace("|", "\\|")
    if isinstance(node, ast.JoinedStr):
        return "".join(words(value, texts) for value in node.values)
    return "…"


def metrics() -> str:
    rows = ["| metric | type | unit | |", "|---|---|---|---|"]
    for each in METRICS:
        labels = f"{{{', '.join(each.labels)}}}" if each.labels else ""
        rows.append(f"| `{each.sample}{labels}` | {each.kind} | {each.unit} | {each.help} |")
    return "\n".join(rows)


@pytest.mark.parametrize(
    "generate",
    [flags, sync_flags, tail_flags, ctl_flags, endpoints, errors, metrics],
    ids=lambda generate: generate.__name__,
)
def test_the_generated_parts_of_the_reference_are_current(generate: Callable[[], str]) -> None:
    check_generated(generate.__name__, generate())


def test_the_first_page_of_the_reference_names_every_other_page() -> None:
    index = (pages.REFERENCE / "README.md").read_text()
    named = re.findall(r"^\| \[.+?\]\(([\w-]+\.md)\) \|", index, re.MULTILINE)
    assert sorted(named) == sorted(
        page.name for page in pages.REFERENCE.glob("*.md") if page.name != "README.md"
    )


def check_generated(name: str, current: str) -> None:
    pattern = re.compile(rf"(<!-- {name}: .*? -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    ((page, text),) = (
        (page, text)
        for page in pages.REFERENCE.glob("*.md")
        if pattern.search(text := page.read_text())
    )
    written, parts = pattern.subn(lambda found: f"{found[1]}\n{current}\n\n{found[2]}", text)
    assert parts == 1
    if os.environ.get("OPLOG_UPDATE_DOCS"):
        page.write_text(written)
    else:
        assert text == written, "write the generated parts again with OPLOG_UPDATE_DOCS=1"


def test_the_reference_has_every_event_and_exit_code(agent: Agent) -> None:
    text = pages.STREAM.read_text()
    table = text[text.index("| event | id | data |") :].partition("\n\n")[0]
    assert re.findall(r"`(\w+)`", " ".join(row.split("|")[1] for row in table.splitlines())) == [
        *EVENTS,
        "reset",
        "live",
    ]
    codes = re.findall(
        r"^\| (\d) \|", pages.FLAGS.read_text().partition("## Exit codes")[2], re.MULTILINE
    )
    known = {value for name, value in vars(server).items() if name.startswith("EXIT_")}
    assert {int(code) for code in codes} == known | {2}  # 2: a bad setting


def test_every_status_that_an_answer_can_have_is_explained() -> None:
    text = pages.ERRORS.read_text()
    table = text[text.index("| status | when |") :].partition("\n\n")[0]
    explained = {
        code for row in table.splitlines() for code in re.findall(r"\b\d{3}\b", row.split("|")[1])
    }
    assert explained == set(re.findall(r"^\| (\d{3}) \|", errors(), re.MULTILINE))


def test_every_trouble_with_the_store_is_explained() -> None:
    table = pages.TROUBLE.read_text().partition("| reason | what to do |")[2].partition("\n\n")[0]
    reasons = [row.split("|")[1].strip() for row in table.splitlines()[2:]]
    code = "".join(path.read_text() for path in (ROOT / "oplogd").rglob("*.py"))
    assert [reason for reason in reasons if reason.replace("…", "") not in code] == []
    tree = ast.parse((ROOT / "oplogd/store/sqlite/file/connection.py").read_text())
    (translate,) = (
        n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "translated"
    )
    told = [
        words(n.value, {})
        for n in ast.walk(translate)
        if isinstance(n, ast.Assign) and words(n.value, {}) != "…"
    ]
    told = [reason for reason in told if reason[0] != "…"]  # SQLite's own messages
    assert len(told) >= 5
    assert [reason for reason in told if not reason.startswith(tuple(reasons))] == []


def test_every_member_of_the_status_is_explained(agent: Agent) -> None:
    status = agent.status()
    explained = pages.MONITORING.read_text()
    members = {
        name for name in status if name not in ("status", "version", "uptime_seconds", "store")
    }
    members |= {f"store.{name}" for name in status["store"] if name != "kind"}
    assert {name for name in members if f"`{name}`" not in explained} == set()


def snippets(document: Path, language: str) -> list[str]:
    return re.findall(
        rf"^```{language}(?: \w+)?\n(.*?)^```", document.read_text(), re.DOTALL | re.MULTILINE
    )


def test_the_readme_begins_with_two_commands_that_exist() -> None:
    setup = snippets(ROOT / "README.md", "sh")[0]
    assert re.findall(r"^make (\w+)", setup, re.MULTILINE) == ["demo", "test"]
    makefile = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in ("demo", "test"))


def test_every_link_leads_somewhere() -> None:
    broken = []
    for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for link in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
            path, _, anchor = link.partition("#")
            if "://" in link:
                continue
            target = (document.parent / path).resolve() if path else document
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append((document.name, link))
    assert broken == []


def anchors(document: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_operation_of_the_reference_is_accepted_and_again_after_a_restart(
    tmp_path: Path,
) -> None:
    (operation,) = snippets(pages.INGEST, "json")
    port = free_port()
    for _ in range(2):
        with agent_on(port, tmp_path) as agent:
            with agent.follow() as stream:
                assert agent.post(operation.encode()) == 204
                (event,) = stream.take(1)
            assert agent.stop() == 0
        given = json.loads(operation)
        assert fold([Event(event.id, event.event, event.data)]) == {
            f"{given['type']}/{given['id']}": event.data
        }
        assert {**event.operation, "event": event.event} == given


def test_the_token_of_the_reference_opens_the_stream_and_again_after_a_restart(
    tmp_path: Path,
) -> None:
    (command,) = snippets(pages.PASSWORDS, "sh")
    port = free_port()
    for _ in range(2):
        with agent_on(port, tmp_path, "--password", "secret") as agent:
            given = subprocess.run(
                ["bash", "-ec", command.replace("localhost:8042", f"127.0.0.1:{port}")],
                check=True,
                timeout=DEADLINE,
                capture_output=True,
            )
            with agent.follow("0", token=json.loads(given.stdout)["token"]) as stream:
                assert [event.event for event in stream.until("live")] == ["reset", "live"]
            assert agent.stop() == 0


def test_the_demo_shows_how_to_send_and_follow_and_produces() -> None:
    command = [sys.executable, "-u", "-m", "oplogd.demo", "--listen", "localhost:0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as demo:
        assert demo.stdout is not None
        lines: list[str] = []
        while "Ctrl-C" not in "".join(lines[-1:]):
            lines.append(demo.stdout.readline())
        pasted = [line.strip() for line in lines if line.startswith("    curl")]
        assert len(pasted) == 3
        send, live, _ = pasted
        sent = subprocess.run(
            ["bash", "-ec", send], check=True, timeout=DEADLINE, capture_output=True
        )
        assert sent.stdout == b"204\n"
        with subprocess.Popen(
            ["bash", "-c", f"exec {live}"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as curl:
            assert curl.stdout is not None
            assert curl.stdout.readline().startswith(b"id: ")  # the producer goes on by itself
            curl.kill()
        demo.terminate()
        assert demo.wait(DEADLINE) == 0
