"""Settings that name files, and every setting at once."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from oplog_kit.config.fields import Kind
from oplog_relay.agent.publisher import HttpPublisher
from oplog_relay.config.file import load, shown
from oplog_relay.config.tables import sections
from oplog_relay.model.errors import ConfigError
from oplog_relay.model.settings import AgentSettings, DatabaseSettings, RelaySettings, Table
from tests.integration.relay.tls_files import Certificate, certificate, encrypted
from tests.kits.relay.settings_file import SettingsFile

COLUMNS = [column.name for column in dataclasses.fields(Table) if column.name != "name"]


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("tls"), "relay")


@pytest.fixture
def file(tmp_path: Path) -> SettingsFile:
    return SettingsFile(tmp_path)


def others(tls: Certificate) -> dict[str, tuple[Any, Any, Any]]:
    """Return for each setting a value that is not the default: in the file, read, and shown."""

    def same(value: Any) -> tuple[Any, Any, Any]:
        return value, value, value

    urls = ["http://a:1/", "https://b/base"]
    return {
        "name": same("stock"),
        "agents.urls": (urls, tuple(urls), urls),
        "agents.password": ("sEcret", "sEcret", "***"),
        "agents.ca_file": same(str(tls.certificate)),
        "agents.cert_file": same(str(tls.certificate)),
        "agents.key_file": same(str(tls.key)),
        "database.url": ("postgresql://u:x@h/d", "postgresql://u:x@h/d", "postgresql://u:***@h/d"),
        "database.table": same("sales.outbox2"),
        **{f"database.columns.{name}": same(f"{name}_2") for name in COLUMNS},
        "limits.poll": ("200ms", 0.2, "200ms"),
        "limits.heartbeat": (6, 6.0, "6s"),
        "limits.session": ("1m", 60.0, "60s"),
        "limits.in_flight": same(2000),
        "limits.mark": same(50),
        "limits.batch": ("70", 70, 70),
        "limits.shards": same(3),
        "limits.mark_backoff": (0.0125, 0.0125, "12.5ms"),
        "limits.io_error_backoff": ("0.25 s", 0.25, "250ms"),
        "limits.request_timeout": ("7.5s", 7.5, "7.5s"),
        "limits.queue_timeout": ("0.5h", 1800.0, "1800s"),
        "limits.blocked_backoff": (["1s", 2], (1.0, 2.0), ["1s", "2s"]),
        "limits.drain": ("0", 0.0, "0s"),
        "limits.meter": ("1500ms", 1.5, "1.5s"),
        "metrics_listen": same("localhost:9108"),
    }


def leaves(settings: Any, prefix: str = "") -> Iterator[str]:
    """Yield the path of each value in the settings."""
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            yield from leaves(value, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}"


def effective(settings: RelaySettings) -> dict[str, Any]:
    """Return the values of the settings by their paths in the file."""
    return {
        f"{prefix}{field.name}": values[field.name]
        for prefix, fields, values in sections(settings)
        for field in fields
        if field.name in values and field.kind is not Kind.SECTION
    }


def at(document: Any, path: str) -> Any:
    for name in path.split("."):
        document = document[name]
    return document


def test_every_value_of_the_settings_can_be_set_and_is_shown(
    file: SettingsFile, tls: Certificate
) -> None:
    default = RelaySettings("default", DatabaseSettings("sqlite:///default"))
    before = effective(default)
    assert len(before) == len([*leaves(default)])

    given = others(tls)
    assert given.keys() == before.keys()
    settings = load(file.write_values({path: value for path, (value, _, _) in given.items()}), {})
    told = yaml.safe_load(shown(settings))
    for path, (_, value, text) in given.items():
        assert effective(settings)[path] == value != before[path]
        assert at(told, path) == text


def test_what_is_shown_can_be_read_again_but_for_the_secrets(
    file: SettingsFile, tls: Certificate
) -> None:
    given = {
        path: value
        for path, (value, _, _) in others(tls).items()
        if path not in ("agents.password", "database.url")
    }
    settings = load(file.write_values({**given, "database.url": "sqlite:///a%20b.db"}), {})
    assert load(file.write(shown(settings)), {}) == settings


def loaded(file: SettingsFile, files: dict[str, str]) -> None:
    values = {f"agents.{name}": path for name, path in files.items()}
    load(file.write_values({"database.url": "sqlite:///a", "name": "n", **values}), {})


def published(_: SettingsFile, files: dict[str, str]) -> None:
    given: dict[str, Any] = {**files}
    agents = AgentSettings(**given)
    HttpPublisher(RelaySettings("n", DatabaseSettings("sqlite:///a"), agents))


@pytest.mark.parametrize("use", [loaded, published])
def test_files_for_tls_that_cannot_be_used_name_the_setting(
    file: SettingsFile,
    tls: Certificate,
    tmp_path: Path,
    use: Callable[[SettingsFile, dict[str, str]], None],
) -> None:
    (tmp_path / "text.pem").write_text("no PEM")
    other = certificate(tmp_path, "other")
    good, text, missing = (
        str(tls.certificate),
        str(tmp_path / "text.pem"),
        str(tmp_path / "missing"),
    )
    wanted = "a certificate and its private key in PEM, without a pass phrase"
    for files, sentence in (
        ({"ca_file": missing}, f"ca_file: cannot read {missing!r}: No such file or directory"),
        ({"ca_file": text}, f"ca_file: {text!r} does not hold certificates in PEM"),
        ({"cert_file": missing}, f"cert_file: cannot read {missing!r}: No such file or directory"),
        ({"cert_file": text}, f"cert_file: {text!r} does not hold {wanted}"),
        ({"cert_file": good}, f"cert_file: {good!r} does not hold {wanted}"),
        (
            {"cert_file": good, "key_file": missing},
            f"key_file: cannot read {missing!r}: No such file or directory",
        ),
        (
            {"cert_file": good, "key_file": str(other.key)},
            f"cert_file: {good!r} does not hold {wanted}",
        ),
        (
            {"cert_file": good, "key_file": str(encrypted(tls.key))},
            f"cert_file: {good!r} does not hold {wanted}",
        ),
        ({"key_file": str(tls.key)}, "cert_file: is missing; key_file is its private key"),
    ):
        with pytest.raises(ConfigError) as raised:
            use(file, files)
        assert str(raised.value).endswith(f"agents.{sentence}"), files
