"""Mistakes that a newcomer makes: each answer names the line, the setting and the way out."""

from pathlib import Path

import pytest

from tests.kits.pipe.settings_file import HEAD, SettingsFile

SINK = HEAD + "sinks:\n  - name: orders\n    type: postgres\n    url: postgresql://u@h/d\n"
COLON = "look for a colon that is missing in the line before"
BRACES = "put a value with one of { } [ ] , ? in quotes"


def sink(*lines: str) -> str:
    """Return settings whose sink has more lines, from the seventh on."""
    return SINK + "".join(f"    {line}\n" for line in lines)


def other(sink: str) -> str:
    """Return settings with one sink, in the third line."""
    return f"{HEAD}sinks: [{{{sink}}}]\n"


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        # YAML
        ("dir: d\nsources:\n\t- agents: x\n", 3, "indent with spaces, not with tabs"),
        ("dir d\nsources: []\n", 2, COLON),
        (SINK.replace("    url", "   url"), 6, "look at the indentation"),
        (sink("namespace: *"), 7, "put a value that begins with * or & in quotes"),
        (sink("table: {namespace}_rows"), 7, "begins with a brace or a bracket in quotes"),
        (other("name: s, type: file, path: ${X:-y}"), 3, BRACES),
        (SINK + "---\nx: 1\n", 7, "a file has one document: remove the line ---"),
        # Names of settings
        (sink("batching: {messages: 5}"), 7, "sinks[0].batching: unknown; did you mean batch?"),
        (sink("batch_size: 5"), 7, "sinks[0].batch_size: unknown; give batch: {messages: 1000}"),
        (sink("filter: order"), 7, "sinks[0].filter: unknown; did you mean namespace?"),
        (sink("user: joe"), 7, "sinks[0].user: unknown; it is a part of url"),
        (sink("dlq: x"), 7, "sinks[0].dlq: unknown; did you mean dead_letter?"),
        (sink("Table: x"), 7, "sinks[0].Table: unknown; did you mean table?"),
        (sink("retry-for: 5s"), 7, "sinks[0].retry-for: unknown; did you mean retry_for?"),
        (sink("messages: 5"), 7, "sinks[0].messages: unknown; it belongs to batch"),
        (SINK + "port: 9109\n", 7, "port: unknown; did you mean listen?"),
        (SINK + "on_error: go\n", 7, "on_error: unknown; did you mean on_failure? It belongs to"),
        (SINK + "retry_for: 5s\n", 7, "retry_for: unknown; it belongs to each of sinks"),
        (HEAD.replace("agents", "topic: a/b, agents") + SINK[len(HEAD) :], 2, "did you mean log?"),
        (HEAD.replace("agents", "urls") + SINK[len(HEAD) :], 2, "urls: unknown; did you mean age"),
        (SINK.replace("sources", "source"), 2, "source: unknown; did you mean sources?"),
        (other("name: s, type: elasticsearch, url: 'http://h'"), 3, "did you mean urls?"),
        (sink("transforms: [{fetch: , hosts: [h]}]"), 7, "hosts: unknown; it belongs to fetch"),
        (
            HEAD + "sinks:\n  - orders:\n      type: file\n",
            4,
            "sinks[0].orders: unknown; if it is the name, give name: orders",
        ),
        # Kinds of values
        (HEAD + "sinks:\n  orders: {type: file}\n", 4, "begin each of the sinks with a dash"),
        (HEAD + "sinks: {name: a, type: file, path: x}\n", 3, "begin each of the sinks with a d"),
        (sink("batch: 1000"), 7, "sinks[0].batch: must be a mapping of settings: messages, bytes"),
        (sink("columns: [item]"), 7, "must be a mapping, such as {name: value}"),
        (sink("columns: {item: 5}"), 7, "put a number or a word such as yes in quotes"),
        (sink("table: {namespace}"), 7, "put text that begins with a brace in quotes"),
        (sink("namespace: [a, b]"), 7, "not a list; of several names give ^(a|b)$"),
        (sink("transforms: [{fetch: true}]"), 7, "must be a mapping of settings: concurrency"),
        (sink("create: no"), 7, "sinks[0].create: must be true or false"),
        (SINK + "listen: 9109\n", 7, "put a number or a word such as yes in quotes"),
        # Values
        (sink("namespace: order,video"), 7, "of several names give ^(order|video)$"),
        (sink("namespace: '*'"), 7, ".* matches everything"),
        (sink("transforms: shape.py:video"), 7, "without .py, such as shape:video"),
        (sink("transforms: shape"), 7, "must be module:name, such as shape:video"),
        (sink("retry_for: 5 minutes"), 7, "such as 500ms, 20s, 10m, 12h, 30d or 2w"),
        (sink("start: beginning"), 7, "must be end or copy"),
        (sink("table: orders"), 7, "let namespace be one literal, such as ^video$"),
        (sink("url_file: x"), 7, "excludes url: give one of them"),
        (SINK + "listen: localhost\n", 7, "such as :9108, localhost:9108"),
        (SINK + "max_segment_bytes: 64 Mio\n", 7, "such as 10485760, 64KB, 10MB, 1GB or 1TB"),
        (SINK.replace("u@h", "u:${PW}@h"), 6, "set it, or write ${PW:-default}"),
        (SINK.replace("u@h", "u:a$b@h"), 6, "a dollar $$"),
        (SINK.replace("postgresql:", "mysql:"), 6, "such as postgresql://user@host/database"),
        (SINK.replace("postgres\n", "postgresql\n"), 5, "did you mean postgres?"),
        (SINK.replace("postgres\n", "kafka\n"), 5, "give elasticsearch, file, http"),
        (SINK.replace("postgres\n", "mine.Sink\n"), 5, "did you mean mine:Sink?"),
        (other("name: s, type: webhook"), 3, "did you mean http?"),
        (other("name: my sink, type: file, path: x"), 3, "ASCII letters, digits, '.', '_' or '-'"),
        (other("name: s, type: opensearch, urls: 'h:9200'"), 3, "such as http://localhost:9200"),
        (HEAD.replace("http://a", "a") + SINK[len(HEAD) :], 2, "such as http://localhost:8042"),
        ("dir: d\n" + SINK[len(HEAD) :], 1, "sources: is missing: give a list of logs to follow"),
    ],
)
def test_the_answer_names_the_line_the_setting_and_the_way_out(
    tmp_path: Path, text: str, line: int, sentence: str
) -> None:
    found = SettingsFile(tmp_path).mistakes(text)
    assert any(each.startswith(f"pipe.yaml:{line}: ") and sentence in each for each in found), found
