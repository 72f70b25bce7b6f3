"""The settings of the sinks of a pipe: mistakes in them, and what must be unique."""

import re
from pathlib import Path

import pytest

from oplog_pipe.config import load, shown
from tests.kits.pipe.settings_file import QUOTES, SettingsFile, sinks

OPLOG = "{agents: [http://a:1]}"
FILE = "name: n, type: file, path: p"
HTTP = "name: n, type: http, url: 'http://h'"
SEARCH = "name: n, type: elasticsearch, urls: ['http://h']"
TABLE = "name: n, type: postgres, url: 'postgresql://h/d'"
OTHER = "name: n, type: oplog, agents: ['http://h']"
CUSTOM = "name: n, type: 'm:C'"
BOTH = "format: stands in the place of type: leave one of them out"
EITHER = "must have either function or fetch"


@pytest.fixture
def file(tmp_path: Path) -> SettingsFile:
    return SettingsFile(tmp_path)


@pytest.mark.parametrize(
    ("sink", "sentence"),
    [
        ("type: file, path: p", "name: is missing: give the sink a name"),
        ("name: n", "type: is missing: give elasticsearch, file, http"),
        ("name: n, path: p", "type: is missing: give elasticsearch, file, http"),
        ("name: n, type: file", "path: is missing: give the file to write"),
        ("name: n/m, type: file, path: p", "name: 'n/m' must be 1 to 64 ASCII letters, digits"),
        ("name: n, type: fil, path: p", "type: 'fil' is no type of a sink; did you mean file?; g"),
        ("name: n, type: kafka, brokers: x", "brokers: unknown"),
        ("name: n, type: postgres, format: orc, path: p, merge: [a]", BOTH),
        ("name: n, type: file, format: orc, path: p", BOTH),
        ("name: n, type: 'm:C', format: orc, path: p, options: {a: b}", BOTH),
        (f"{HTTP}, format: orc", "format: 'orc' must be json or ndjson"),
        ("name: n, type: 'm:', options: {}", "type: 'm:' must be module:name, such as shape"),
        (f"{FILE}, url: x", "url: unknown"),
        (f"{FILE}, rotate_bytes: -1", "rotate_bytes: '-1' is not a size"),
        (f"{FILE}, retry_for: 8d", "retry_for: must be 0s to 604800s"),
        (f"{FILE}, start: begin", "start: 'begin' must be end or copy"),
        (f"{FILE}, transforms: [shape]", "transforms[0]: 'shape' must be module:name"),
        (f"{FILE}, transforms: [fetch, 5]", f"transforms[1]: {QUOTES}"),
        (f"{FILE}, transforms: [{{}}]", f"transforms[0]: {EITHER}"),
        (f"{FILE}, transforms: [{{function: 'a:b', fetch: {{}}}}]", f"transforms[0]: {EITHER}"),
        (f"{FILE}, transforms: [{{functoin: 'a:b', fetch: }}]", "transforms[0].functoin: unknown"),
        (f"{FILE}, transforms: [[]]", "transforms[0]: must be a mapping of settings"),
        (f"{FILE}, transforms: [{{fetch: {{timeout: 0}}}}]", "transforms[0].fetch.timeout: must"),
        (
            f"{FILE}, transforms: [{{fetch: {{user: u, hosts: [h]}}}}]",
            "transforms[0].fetch.password",
        ),
        (f"{FILE}, transforms: [{{fetch: {{user: u, password: p}}}}]", "transforms[0].fetch.hosts"),
        (f"{FILE}, batch: {{messages: 0}}", "batch.messages: must be 1 to 100,000"),
        (f"{FILE}, batch: {{bytes: x}}", "batch.bytes: 'x' is not a size"),
        (f"{FILE}, batch: 5", "batch: must be a mapping of settings"),
        (f"{HTTP}, copies: yes", "copies: must be true or false"),
        (f"{HTTP}, headers: [a]", "headers: must be a mapping"),
        (f"{HTTP}, headers: {{a: 1}}", f"headers: a: {QUOTES}"),
        (f"{HTTP}, password: p", "user: is missing: password belongs to a user"),
        (f"{HTTP}, user: p", "password: is missing: it belongs to user"),
        ("name: n, type: http, url: 'ftp://u:sEcret@h'", "url: must be an address such as http://"),
        (f"{SEARCH}, api_key: k, user: u, password: p", "api_key: excludes user"),
        (f"{SEARCH}, index: '{{type}}'", "index: '{type}' has '{type}'; use {namespace} and {id}"),
        (f"{SEARCH}, index: 'a{{'", "index: 'a{' has '{'; use {namespace} and {id}"),
        (f"{SEARCH}, index: all", "index: must hold {namespace}: else objects of"),
        (f"{SEARCH}, index: all, namespace: ^a", "index: must hold {namespace}: else objects"),
        (f"{SEARCH}, index: all, namespace: ^a.b$", "index: must hold {namespace}: else obj"),
        (f"{SEARCH}, id: '{{namespace}}'", "id: must hold {id}: else objects overwrite one"),
        (f"{TABLE}, table: all", "table: must hold {namespace}: else objects of"),
        (f"{TABLE}, columns: {{a: b..c}}", "columns: a: 'b..c' must be a path such as owner.name"),
        ("name: n, type: postgres, url: mysql://h", "url: must be an address such as postgresql:"),
        ("name: n, type: mongodb, url: x, database: d", "url: must be an address such as mongodb:"),
        (f"{CUSTOM}, url: x", "url: unknown"),
        (f"{CUSTOM}, options: {{a: {{5: x}}}}", "options: a: the names in a mapping must be text"),
        (f"{CUSTOM}, options: {{a: 2001-99-99}}", "options: a: month must be in 1..12"),
        (f"{CUSTOM}, options: {{a: [!!python/name:x 1]}}", "options: a: cannot be read"),
        (f"{CUSTOM}, options: &a {{a: *a}}", "options: a: a: a: "),
    ],
)
def test_a_mistake_in_a_sink_names_its_place(file: SettingsFile, sink: str, sentence: str) -> None:
    found = file.mistakes(sinks(sink))
    place = f"pipe.yaml:4: sinks[0].{sentence}"
    assert [each for each in found if each.startswith(place)], found
    assert len(found) == 1 + sentence.startswith("brokers")
    assert "sEcret" not in "".join(found)


@pytest.mark.parametrize(
    ("name", "namespace"),
    [
        ("all", "^video$"),
        ("all", r"^a\.b/c$"),
        ("all", r"\Avideo\Z"),
        ("x-{namespace}", ".*"),
    ],
)
def test_each_object_has_a_place(file: SettingsFile, name: str, namespace: str) -> None:
    sink = f"{SEARCH}, index: '{name}', namespace: '{namespace}'"
    assert load(file.write(sinks(sink)), {}).sinks[0].namespace == namespace


@pytest.mark.parametrize("id_", ["{namespace}/{id}", "{namespace},{id}"])
def test_an_id_with_the_namespace_lets_objects_share_an_index(file: SettingsFile, id_: str) -> None:
    sink = f"{SEARCH}, index: all, id: '{id_}'"
    assert load(file.write(sinks(sink)), {})


def test_the_id_that_is_recommended_tells_types_and_topics_apart(file: SettingsFile) -> None:
    (mistake,) = file.mistakes(sinks(f"{SEARCH}, index: all"))
    (id_,) = re.findall("give id: '(.+)'", mistake)
    keys = [("shop", "orders/1"), ("shop/orders", "1"), ("shop", "orders,1"), ("shop", ",1")]
    made = {id_.format(namespace=namespace, id=each) for namespace, each in keys}
    assert len(made) == len(keys)


def test_names_and_files_are_unique(file: SettingsFile) -> None:
    text = f"""
dir: d
sources: [{OPLOG}, {{agents: [http://b:1]}}]
sinks:
  - {{name: a, type: file, path: p, dead_letter: x}}
  - {{name: a, type: file, path: ./p, dead_letter: x}}
"""
    assert file.mistakes(text) == [
        "pipe.yaml:3: sources[1].name: 'system/oplog' is the name of sources[0], too",
        "pipe.yaml:6: sinks[1].dead_letter: 'x' is the dead_letter of sinks[0], too",
        "pipe.yaml:6: sinks[1].name: 'a' is the name of sinks[0], too",
        "pipe.yaml:6: sinks[1].path: 'p' is the path of sinks[0], too",
    ]


def test_a_copy_brings_no_messages_of_topics(file: SettingsFile) -> None:
    text = "dir: d\nsources: [%s]\nsinks: [{name: n, type: file, path: p, start: copy%s}]\n"
    topic = "{agents: [http://a:1], log: shop/orders%s}"
    both = f"{OPLOG}, {topic % ''}"
    told = "pipe.yaml:3: sinks[0].start: copy "
    assert file.mistakes(text % (topic % "", "")) == [
        f"{told}is not possible, because shop/orders is a topic, of which there is no copy; let "
        "namespace exclude it, or use end"
    ]
    assert file.mistakes(text % (topic % "", ", namespace: ^video$")) == [
        f"{told}needs a source with log: system/oplog"
    ]
    assert len(file.mistakes(text % (both, ""))) == 1
    assert load(file.write(text % (both, ", namespace: ^video$")), {})
    assert load(file.write(text % (f"{OPLOG}, {topic % ', namespace: ^video$'}", "")), {})


def test_what_is_shown_can_be_read_again(file: SettingsFile) -> None:
    text = sinks(
        FILE + ", rotate_bytes: 1500, transforms: [fetch, 'a:b'], dead_letter: x, start: end",
        TABLE.replace("name: n", "name: t") + ", columns: {a: b}, timeout: 500ms",
        SEARCH.replace("name: n", "name: s") + ", create: false",
    )
    settings = load(file.write(text + "listen: :9109\nshutdown_timeout: 1.5m\n"), {})
    assert load(file.write(shown(settings)), {}) == settings
