"""Alerts and dashboard pass promtool, and use only declared metrics."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from oplogd.config.settings import Settings
from oplogd.web.figures.metrics import METRICS, Declared
from tests.kits.deploy.files import DEPLOY, must_pass, program, read_yaml, run
from tests.kits.documents import pages

PROMETHEUS = DEPLOY / "prometheus"
DASHBOARD = json.loads((DEPLOY / "grafana/oplog.json").read_text())


def samples() -> dict[str, Declared]:
    """Return the declarations by the names of their samples."""
    return {
        f"{each.sample}{end}": each
        for each in METRICS
        for end in (("_bucket", "_count", "_sum") if each.kind == "histogram" else ("",))
    }


def rules() -> list[dict[str, Any]]:
    (group,) = read_yaml(PROMETHEUS / "alerts.yaml")["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def dashboard_expressions() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield target["expr"].replace("$__rate_interval", "5m")


def test_promtool_accepts_configuration_and_alerts() -> None:
    must_pass(program("promtool"), "check", "config", "prometheus.yaml", cwd=PROMETHEUS)
    must_pass(program("promtool"), "check", "rules", "alerts.yaml", cwd=PROMETHEUS)


def test_each_alert_fires_in_its_cases_only() -> None:
    must_pass(program("promtool"), "test", "rules", "alerts_test.yaml", cwd=PROMETHEUS)
    tested = {
        case["alertname"]
        for test in read_yaml(PROMETHEUS / "alerts_test.yaml")["tests"]
        for case in test["alert_rule_test"]
        if case["exp_alerts"]
    }
    assert tested == {rule["alert"] for rule in rules()}


def test_the_guide_lists_each_alert_with_its_severity() -> None:
    rows = re.findall(r"^\| (`Oplog.*?) \| (\w+) \|", pages.DEPLOYMENT.read_text(), re.MULTILINE)
    listed = {name: severity for names, severity in rows for name in re.findall(r"`(\w+)`", names)}
    assert listed == {rule["alert"]: rule["labels"]["severity"] for rule in rules()}


def test_the_alerts_tests_notice_another_threshold(tmp_path: Path) -> None:
    (tmp_path / "alerts.yaml").write_text(
        (PROMETHEUS / "alerts.yaml").read_text().replace("6 * 3600", "7 * 3600")
    )
    (tmp_path / "alerts_test.yaml").write_text((PROMETHEUS / "alerts_test.yaml").read_text())
    done = run(program("promtool"), "test", "rules", "alerts_test.yaml", cwd=tmp_path)
    assert done.returncode == 1
    assert "OplogLogIsShort" in done.stdout + done.stderr


def test_promtool_can_parse_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    expressions = list(dashboard_expressions())
    recorded = [
        {"record": f"panel:{number}", "expr": text} for number, text in enumerate(expressions)
    ]
    file = tmp_path / "dashboard.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": recorded}]}))
    done = must_pass(program("promtool"), "check", "rules", file)
    assert f"{len(expressions)} rules found" in done.stdout


def named(query: str) -> list[Declared]:
    """Return the metrics that a query names. Fails for one that is not declared."""
    declared = samples()
    return [declared[name] for name in re.findall(r"\boplog_\w+", query)]


def test_each_alert_and_each_query_of_the_dashboard_names_declared_metrics() -> None:
    variables = [variable.get("definition") for variable in DASHBOARD["templating"]["list"]]
    queries = [*dashboard_expressions(), *filter(None, variables)]
    assert all(map(named, queries))
    assert all(named(rule["expr"]) or "up{" in rule["expr"] for rule in rules())


def test_a_legend_of_the_dashboard_shows_labels_of_its_metrics() -> None:
    for target in _targets():
        known = {label for each in named(target["expr"]) for label in each.labels}
        shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        assert shown - known <= {"job", "instance"}


def test_a_panel_has_the_unit_of_its_metrics() -> None:
    for panel in DASHBOARD["panels"]:
        queries = [target["expr"] for target in panel["targets"]]
        units = {each.unit for query in queries for each in named(query)} - {""}
        if units and not any(" / " in query for query in queries):
            shown = panel["fieldConfig"]["defaults"]["unit"]
            assert {shown} == {{"bytes": "bytes", "seconds": "s"}[unit] for unit in units}


def _targets() -> list[dict[str, Any]]:
    return [target for panel in DASHBOARD["panels"] for target in panel["targets"]]


def test_the_panels_of_the_dashboard_have_descriptions_and_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        assert panel["description"]
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert not cells & taken
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    declared = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD))) - {"__rate_interval", "__all"}
    assert used == declared


def test_prometheus_scrapes_the_agents_of_compose_at_their_ports() -> None:
    services = read_yaml(DEPLOY / "compose.yaml")["services"]
    (job,) = read_yaml(PROMETHEUS / "prometheus.yaml")["scrape_configs"]
    (static,) = job["static_configs"]
    agents = {
        f"{name}:{Settings().http_address.port}" for name in services if name.startswith("agent-")
    }
    assert set(static["targets"]) == agents
