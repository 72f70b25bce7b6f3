"""The alerts for relays pass promtool, and use only metrics that a relay exports."""

import re
from pathlib import Path
from uuid import UUID

from prometheus_client import generate_latest

from oplog_relay import DatabaseSettings, LeaderRefreshed, MeterRead, Relay, RelaySettings
from oplog_relay.watch.metrics import Metrics
from tests.kits.deploy.files import DEPLOY, must_pass, program, read_yaml, run
from tests.kits.documents import pages

PROMETHEUS = DEPLOY / "prometheus"
RULES = read_yaml(PROMETHEUS / "relay_alerts.yaml")["groups"][0]["rules"]
GUIDE = pages.OPERATE_RELAY.read_text()


def exported() -> set[str]:
    """Return the names of all metrics of a relay that leads and has failed."""
    settings = RelaySettings("orders", DatabaseSettings("sqlite:///unused"))
    metrics = Metrics(settings)
    relay = Relay(settings)
    metrics.watch(relay)
    metrics.count(MeterRead(0.0, 0, 0, 0, 1, 1.0, 0))
    metrics.count(LeaderRefreshed(UUID(int=0), 1, "mark"))
    text = generate_latest(metrics.registry).decode()
    return set(re.findall(r"^(oplog_relay_\w+)\{", text, re.MULTILINE))


def test_promtool_accepts_the_alerts() -> None:
    must_pass(program("promtool"), "check", "rules", "relay_alerts.yaml", cwd=PROMETHEUS)


def test_each_alert_fires_in_its_cases_only() -> None:
    must_pass(program("promtool"), "test", "rules", "relay_alerts_test.yaml", cwd=PROMETHEUS)
    tested = {
        case["alertname"]
        for test in read_yaml(PROMETHEUS / "relay_alerts_test.yaml")["tests"]
        for case in test["alert_rule_test"]
        if case["exp_alerts"]
    }
    assert tested == {rule["alert"] for rule in RULES}


def test_the_alerts_tests_notice_another_threshold(tmp_path: Path) -> None:
    for name, old, new in (
        ("relay_alerts.yaml", "seconds > 60", "seconds > 59"),
        ("relay_alerts_test.yaml", "", ""),
    ):
        (tmp_path / name).write_text((PROMETHEUS / name).read_text().replace(old, new))
    done = run(program("promtool"), "test", "rules", "relay_alerts_test.yaml", cwd=tmp_path)
    assert done.returncode == 1
    assert "OplogRelayRowsWait" in done.stdout + done.stderr


def test_every_metric_of_an_alert_is_exported() -> None:
    asked = set(re.findall(r"\boplog_\w+", " ".join(rule["expr"] for rule in RULES)))
    assert len(asked) > 4
    assert asked - exported() == set()


def test_the_guide_lists_each_alert_with_its_severity() -> None:
    listed = dict(re.findall(r"^\| `(OplogRelay\w+)` \| (\w+) \|", GUIDE, re.MULTILINE))
    assert listed == {rule["alert"]: rule["labels"]["severity"] for rule in RULES}


def test_the_guide_lists_each_metric() -> None:
    listed = set(re.findall(r"^\| `oplog_relay_(\w+?)(?:\{\w+\})?` \|", GUIDE, re.MULTILINE))
    ends = r"_(bucket|count|sum)$"
    names = {re.sub(ends, "", each) for each in exported() if not each.endswith("_created")}
    assert listed == {each.removeprefix("oplog_relay_") for each in names}
