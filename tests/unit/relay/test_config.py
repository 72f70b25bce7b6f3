"""The settings of a relay from a file and the environment: values, secrets and mistakes."""

from pathlib import Path
from typing import Any

import pytest

from oplog_relay.config.checks import check
from oplog_relay.config.file import load, shown
from oplog_relay.model.errors import ConfigError
from oplog_relay.model.settings import (
    AgentSettings,
    DatabaseSettings,
    Limits,
    RelaySettings,
    Table,
)
from tests.kits.relay.settings_file import LEAST, SettingsFile


@pytest.fixture
def file(tmp_path: Path) -> SettingsFile:
    return SettingsFile(tmp_path)


def test_the_least_that_runs_has_the_defaults_for_the_rest(file: SettingsFile) -> None:
    least = RelaySettings("orders", DatabaseSettings("sqlite:///app.db"))
    assert load(file.write(LEAST), {}) == least
    empty = "\nagents:\nlimits: {poll: , batch: null}\nmetrics_listen:\n"
    without_agents = LEAST.replace("agents: [http://localhost:8042]\n", "")
    assert load(file.write(without_agents + empty), {}) == least


def test_one_address_may_stand_for_the_agents(file: SettingsFile) -> None:
    text = LEAST.replace("[http://localhost:8042]", "http://a:1")
    assert load(file.write(text), {}).agents.urls == ("http://a:1",)


def no_variable(name: str) -> str:
    """Return the sentence about a variable that is not set."""
    return f"the environment has no variable {name}: set it, or write ${{{name}:-default}}"


NO_DURATION = "is not a duration, such as 500ms, 20s, 10m, 12h, 30d or 2w"
TWO = "must be a list of two durations, such as [500ms, 30s]"
QUOTES = "must be text; put a number or a word such as yes in quotes"
NO_AGENT = "(an address with a password) is no address of an agent, such as http://localhost:8042"
NO_ADDRESS = "is not an address such as :9108, localhost:9108 or [::1]:9108"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("limits: {hearbeat: 5}", "limits.hearbeat: unknown; did you mean heartbeat?"),
        (r'"a\e[2J\n": 1', r"a\x1b[2J\n: unknown"),
        ("nothing_like_it: 5", "nothing_like_it: unknown"),
        ("<<: {name: x}", "the name of a setting must be text"),
        ("5: x", "the name of a setting must be text"),
        ("limits: {5: x}", "limits: the name of a setting must be text"),
        ("limits: {poll: 1, poll: 2}", "limits.poll: is given twice, first in line 4"),
        ("name: other", "name: is given twice, first in line 1"),
        ("limits: [poll]", "limits: must be a mapping of settings: poll, heartbeat, session …"),
        ("limits: {poll: [1]}", "limits.poll: must be a single value"),
        ("limits: {poll: 5x}", f"limits.poll: '5x' {NO_DURATION}"),
        ("limits: {poll: 5x, heartbeat: 100ms}", f"limits.poll: '5x' {NO_DURATION}"),
        ("limits: {poll: 9ms, heartbeat: 100ms}", "limits.poll: must be 10ms to 60s"),
        ("limits: {poll: -1}", f"limits.poll: '-1' {NO_DURATION}"),
        ("limits: {poll: .nan}", f"limits.poll: '.nan' {NO_DURATION}"),
        ("limits: {poll: 1:30}", f"limits.poll: '1:30' {NO_DURATION}"),
        ("limits: {poll: true}", f"limits.poll: 'true' {NO_DURATION}"),
        ("limits: {poll: '${PASSWORD}'}", f"limits.poll: '${{PASSWORD}}' {NO_DURATION}"),
        ("limits: {poll: 9ms}", "limits.poll: must be 10ms to 60s"),
        ("limits: {batch: 1.5}", "limits.batch: '1.5' is not a whole number"),
        ("limits: {batch: 0x10}", "limits.batch: '0x10' is not a whole number"),
        ("limits: {batch: 101}", "limits.batch: must be 1 to 100"),
        ("limits: {batch: 0}", "limits.batch: must be 1 to 100"),
        ("limits: {blocked_backoff: 5s}", f"limits.blocked_backoff: {TWO}"),
        ("limits: {blocked_backoff: [5s]}", f"limits.blocked_backoff: {TWO}"),
        ("limits: {blocked_backoff: [0, 5s]}", "limits.blocked_backoff: must be 10ms to 3600s"),
        (
            "limits: {blocked_backoff: [6s, 5s]}",
            "limits.blocked_backoff: the first pause must be at most the longest",
        ),
        (
            "limits: {session: 5.4s}",
            "limits.session: must exceed heartbeat, which is 5s, by a tenth or more",
        ),
        ("metrics_listen: 9108", f"metrics_listen: {QUOTES}"),
        ("metrics_listen: a:99999", f"metrics_listen: 'a:99999' {NO_ADDRESS}"),
        ("metrics_listen: '[x]:1'", f"metrics_listen: '[x]:1' {NO_ADDRESS}"),
        (
            "metrics_listen: ${HERE}",
            f"metrics_listen: {no_variable('HERE')}",
        ),
        (
            "metrics_listen: $HERE",
            "metrics_listen: a variable is written ${NAME} or ${NAME:-default}, and a dollar $$; "
            "in the default a brace is written $}",
        ),
        ("metrics_listen: ${NOTHING}", "metrics_listen: is empty: ${NOTHING} is"),
        ("metrics_listen: ''", "metrics_listen: is empty"),
    ],
)
def test_a_mistake_is_told_with_its_line_and_path(
    file: SettingsFile, text: str, sentence: str
) -> None:
    found = file.mistakes(LEAST + text, NOTHING="", PASSWORD="sEcret")
    assert found == [f"relay.yaml:4: {sentence}"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("limits: {heartbeat: 9.1}", "session: must exceed heartbeat, which is 9.1s, by a tenth"),
        ("limits: {poll: 5s}", "heartbeat: must exceed poll, which is 5s"),
        ("limits: {in_flight: 99}", "mark: must be at most in_flight, which is 99"),
        ("limits: {request_timeout: 30}", "queue_timeout: must exceed request_timeout, which is"),
    ],
)
def test_a_default_must_fit_to_the_settings_of_the_file(
    file: SettingsFile, text: str, sentence: str
) -> None:
    (found,) = file.mistakes(LEAST + text)
    assert found.startswith(f"relay.yaml: limits.{sentence}")


@pytest.mark.parametrize(
    "limits",
    [
        {"heartbeat": 9.0909},
        {"heartbeat": 3.0, "session": 3.3},
        {"poll": 4.999},
        {"in_flight": 100},
        {"request_timeout": 29.9},
        {"blocked_backoff": (5.0, 5.0)},
    ],
)
def test_settings_that_just_fit_are_taken(limits: dict[str, Any]) -> None:
    check(RelaySettings("orders", DatabaseSettings("sqlite:///app.db"), limits=Limits(**limits)))


def test_settings_made_in_code_are_checked_in_the_same_way() -> None:
    table = Table(name="a.b.c", key="ID")
    settings = RelaySettings(
        "or ders",
        DatabaseSettings("sqlite:///app.db", table),
        AgentSettings((), key_file="key.pem"),
        Limits(batch=0, drain=-1, poll=20.0),
        "nowhere",
    )
    with pytest.raises(ConfigError) as raised:
        check(settings)
    assert [line.partition(": ")[0] for line in str(raised.value).splitlines()] == [
        "agents.cert_file",
        "agents.urls",
        "database.columns.key",
        "database.table",
        "limits.batch",
        "limits.drain",
        "limits.heartbeat",
        "metrics_listen",
        "name",
    ]


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file(file: SettingsFile) -> None:
    text = """\
name: or ders
agents:
  urls: ["${A}", "gopher://u:sEcret@h"]
  password: 1234
  pasword: sEcret
database: {url: "${B}", password: sEcret, columns: {idd: x, id: KEY}}
limits:
  poll: 7s
  session: 5x
  batch: 101
"""
    assert file.mistakes(text, OPLOG_RELAY_PASWORD="sEcret", OPLOG_RELAY_X="x") == [
        "unknown variable OPLOG_RELAY_PASWORD; did you mean OPLOG_RELAY_PASSWORD?",
        "unknown variable OPLOG_RELAY_X",
        "relay.yaml: database.columns.key: has the name of the column id, too",
        "relay.yaml: limits.heartbeat: must exceed poll, which is 7s",
        "relay.yaml:1: name: 'or ders' must be 1 to 249 ASCII letters, digits, '.', '_' or '-', "
        "and not '.' or '..'",
        f"relay.yaml:3: agents.urls: {no_variable('A')}; {NO_AGENT}",
        f"relay.yaml:4: agents.password: {QUOTES}",
        "relay.yaml:5: agents.pasword: unknown; did you mean password?",
        "relay.yaml:6: database.columns.idd: unknown; did you mean id?",
        f"relay.yaml:6: database.url: {no_variable('B')}",
        f"relay.yaml:9: limits.session: '5x' {NO_DURATION}",
        "relay.yaml:10: limits.batch: must be 1 to 100",
    ]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("name: orders", "relay.yaml: database.url: is missing: give the database of the outbox"),
        ("database: x", "relay.yaml:1: database: must be a mapping of settings"),
        ("- x", "relay.yaml:1: must be a mapping of settings"),
        ("agents: x", "relay.yaml:1: agents.urls: 'x' is no address of an agent, such as"),
        ("agents: []", "relay.yaml:1: agents.urls: is empty: give a value, or leave it out"),
        ("agents: [x]", "relay.yaml:1: agents.urls: 'x' is no address of an agent, such as"),
        ("agents: [5]", f"relay.yaml:1: agents.urls: {QUOTES}"),
        ("agents: {urls: {x: y}}", "relay.yaml:1: agents.urls: must be a list of strings"),
        ("database: {url: 'mysql://u:sEcret@h/d'}", "relay.yaml:1: database.url: mysql:// is not"),
        ("database: {url: sEcret}", "relay.yaml:1: database.url: not a URL such as"),
        ("database: {table: a.b.c}", "relay.yaml:1: database.table: 'a.b.c' must be table or"),
        ("database: {table: ''}", "relay.yaml:1: database.table: is empty"),
        ("a: *sEcret", "relay.yaml:1: not valid YAML: found undefined alias …"),
        ("a:\n\t- b", r"relay.yaml:2: not valid YAML: found character '\t' that cannot start"),
        ("a: [b\nc: sEcret", "relay.yaml:2: not valid YAML: expected ',' or ']', but got ':'"),
        ("a: [", "relay.yaml:1: not valid YAML: expected the node content"),
        ("a: 1\n--- \nb: 2", "relay.yaml:2: not valid YAML: but found another document"),
        ("a: \x07", "relay.yaml: not valid YAML: it has a control character"),
        ("[" * 1500, "relay.yaml: not valid YAML: nested too deeply"),
    ],
)
def test_no_file_leads_to_a_traceback_or_shows_a_secret(
    file: SettingsFile, text: str, sentence: str
) -> None:
    found = file.mistakes(text)
    assert [line for line in found if line.startswith(sentence)], found
    assert "sEcret" not in "".join(found)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"name: \xe9")
    (tmp_path / "large").write_bytes(b" " * 1_100_000)
    for name, reason in (
        ("missing", "cannot read '.*missing': No such file or directory"),
        ("latin", "latin' is not UTF-8 text"),
        ("large", "large' is larger than 1,048,576 bytes"),
        (".", "cannot read .*: Is a directory"),
    ):
        with pytest.raises(ConfigError, match=reason):
            load(tmp_path / name, {})


def test_variables_are_replaced_in_values_and_a_dollar_is_doubled(file: SettingsFile) -> None:
    text = """
name: ${REGION}-orders
agents: {urls: ["http://${HOST}:1"], password: "a$$b$${c}${PW}"}
database: {url: "sqlite:///${FOLDER}/app.db"}
limits: {poll: "${POLL}", batch: "${BATCH}"}
"""
    environ = {"REGION": "eu", "HOST": "h", "PW": "${X}$", "FOLDER": "f", "POLL": "2s"}
    settings = load(file.write(text), environ | {"BATCH": "7"})
    assert settings.name == "eu-orders"
    assert settings.agents == AgentSettings(("http://h:1",), "a$b${c}${X}$")
    assert settings.database.url == "sqlite:///f/app.db"
    assert (settings.limits.poll, settings.limits.batch) == (2.0, 7)


def test_variables_of_the_relay_take_precedence_over_the_file(file: SettingsFile) -> None:
    text = "name: n\nagents: {password: a}\ndatabase: {url: 'postgresql://u@h/d', password: b}\n"
    given = load(file.write(text), {})
    assert given.agents.password == "a"
    assert given.database.url == "postgresql://u:b@h/d"
    # Empty ones are not set.
    environ = dict.fromkeys(("OPLOG_RELAY_PASSWORD", "OPLOG_RELAY_DATABASE_URL"), "")
    assert load(file.path, environ | {"OPLOG_RELAY_X": ""}) == given
    environ = {
        "OPLOG_RELAY_PASSWORD": "c",
        "OPLOG_RELAY_DATABASE_URL": "postgresql://v:d@i/e?x=1",
        "OPLOG_RELAY_DATABASE_PASSWORD": "e@/:",
    }
    settings = load(file.path, environ)
    assert settings.agents.password == "c"
    assert settings.database.url == "postgresql://v:e%40%2F%3A@i/e?x=1"
    assert load(file.write("name: n"), environ) == settings


def test_variables_that_kubernetes_sets_for_a_service_are_ignored(file: SettingsFile) -> None:
    environ = {
        "OPLOG_RELAY_SERVICE_HOST": "10.0.0.1",
        "OPLOG_RELAY_PORT": "tcp://10.0.0.1:9108",
        "OPLOG_RELAY_PORT_9108_TCP_PORT": "9108",
    }
    assert load(file.write(LEAST), environ).name == "orders"
    assert file.mistakes(LEAST, OPLOG_RELAY_HOST="9108") == ["unknown variable OPLOG_RELAY_HOST"]


def test_secrets_come_from_files_without_one_newline_at_the_end(file: SettingsFile) -> None:
    folder = file.path.parent
    (folder / "pw").write_text("sEcret \r\n")
    (folder / "url").write_text("postgresql://u@h/d\n")
    text = (
        f"name: n\nagents: {{password_file: {folder}/pw}}\n"
        f"database: {{url_file: {folder}/url, password_file: {folder}/pw}}\n"
    )
    settings = load(file.write(text), {})
    assert settings.agents.password == "sEcret "
    assert settings.database.url == "postgresql://u:sEcret%20@h/d"


def test_a_file_of_a_secret_that_cannot_be_used_is_named(file: SettingsFile) -> None:
    folder = file.path.parent
    (folder / "empty").write_text("\n")
    (folder / "lines").write_text("sEcret\nsEcret\n")
    for name, reason in (
        ("missing", "cannot read 'missing': No such file or directory"),
        ("empty", "'empty' must hold one line of text"),
        ("lines", "'lines' must hold one line of text"),
    ):
        text = LEAST.replace("[http://localhost:8042]", f"{{password_file: {folder}/{name}}}")
        assert file.mistakes(text) == [f"relay.yaml:2: agents.password_file: {reason}"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "agents: {password: a, password_file: b}",
            "agents.password_file: excludes password",
        ),
        (
            "agents: {password_file: b, password: a}",
            "agents.password: excludes password_file",
        ),
        (
            "database: {url: 'sqlite:///a', url_file: b}",
            "database.url_file: excludes url",
        ),
        (
            "database: {url: 'sqlite:///a', password: b}",
            "database.password: belongs to a URL such as postgresql://user@host/db",
        ),
    ],
)
def test_a_secret_is_given_once(file: SettingsFile, text: str, sentence: str) -> None:
    hint = ": give one of them" if "excludes" in sentence else ""
    found = file.mistakes(f"name: n\n{text}")
    assert f"relay.yaml:2: {sentence}{hint}" in found


def test_no_secret_is_shown(file: SettingsFile) -> None:
    for url, expected in (
        ("postgresql://u:sEcret@h/d", "postgresql://u:***@h/d"),
        ("postgresql://:sEcret@h:5432/d", "postgresql://:***@h:5432/d"),
        ("postgresql:///d?user=u&password=sEcret", "postgresql:///d?user=u&password=***"),
        ("postgresql:///d?host=/run/p&sslpassword=sEcret", "host=/run/p&sslpassword=***"),
    ):
        text = (
            f"name: n\nagents: {{urls: ['http://u:sEcret@h:1/?t=sEcret'], password: sEcret}}\n"
            f"database: {{url: '{url}'}}\n"
        )
        settings = load(file.write(text), {})
        told = shown(settings)
        assert f"url: {expected}" in told or expected in told
        assert "http://h:1/" in told
        assert "password: '***'" in told
        assert "sEcret" not in told + repr(settings) + str(settings)


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("/opt/orders", "orders"),
        ("orders.py", "orders"),
        ("C:/orders.exe", "orders"),
        ("order-service2.pyz", "order-service2"),
        *[
            (silent, None)
            for silent in (
                "", "-c", "-", "/usr/bin/python3.11", "python", "pypy3", "pytest", "py.test",
                "uvicorn", "gunicorn", "celery", "/x/__main__.py", "main.py", "app.py",
                "/bin/oplog-relay", "oplog_relay", "my service", "größe",
            )
        ],
    ],
)  # fmt: skip
def test_the_group_is_named_after_an_executable_whose_name_says_something(
    file: SettingsFile, monkeypatch: pytest.MonkeyPatch, program: str, name: str | None
) -> None:
    monkeypatch.setattr("sys.argv", [program])
    unnamed = LEAST.partition("\n")[2]
    if name is None:
        assert file.mistakes(unnamed) == [
            "relay.yaml: name: is missing: give the leader group a name"
        ]
    else:
        assert load(file.write(unnamed), {}).name == name
