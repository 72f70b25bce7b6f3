"""The alerts for pipes pass promtool, and use only metrics that a pipe exports."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import generate_latest
from prometheus_client.core import Metric

from oplog_pipe.model.status import LogStatus, PipeStatus, SinkStatus, SourceStatus
from oplog_pipe.watch.metrics import registry_of
from tests.kits.deploy.files import DEPLOY, must_pass, program, read_yaml, run
from tests.kits.documents import pages

PROMETHEUS = DEPLOY / "prometheus"
RULES = read_yaml(PROMETHEUS / "pipe_alerts.yaml")["groups"][0]["rules"]
GUIDE = pages.OPERATE_PIPE
STATUS = PipeStatus(
    "1.2.3",
    1.0,
    LogStatus(0, 1, 100, 1, -1, 1000),
    [SourceStatus("system/oplog", "system/oplog", copy_total=1, newest_ms=1)],
    [SinkStatus("search", "file", "bulk")],
)


def metrics() -> list[Metric]:
    return list(registry_of(lambda: STATUS).collect())


def exported() -> set[str]:
    """Return the names of all samples."""
    text = generate_latest(registry_of(lambda: STATUS)).decode()
    return set(re.findall(r"^(oplog_pipe_\w+)", text, re.MULTILINE))


def table() -> Iterator[str]:
    yield "| metric | |\n|---|---|"
    for metric in metrics():
        (sample,) = metric.samples
        labels = ",".join(sample.labels)
        name = f"{sample.name}{{{labels}}}" if labels else sample.name
        yield f"| `{name}` | {metric.documentation}. |"


def test_the_guide_lists_each_metric() -> None:
    text = GUIDE.read_text()
    rows = "\n".join(table())
    pattern = re.compile(r"(<!-- metrics: .*? -->\n).*?(<!-- /metrics -->)", re.DOTALL)
    written, parts = pattern.subn(lambda found: f"{found[1]}\n{rows}\n\n{found[2]}", text)
    assert parts == 1
    if os.environ.get("OPLOG_UPDATE_DOCS"):
        GUIDE.write_text(written)
    else:
        assert text == written, "write the generated part again with OPLOG_UPDATE_DOCS=1"


def test_promtool_accepts_the_alerts() -> None:
    must_pass(program("promtool"), "check", "rules", "pipe_alerts.yaml", cwd=PROMETHEUS)


def test_each_alert_fires_in_its_cases_only() -> None:
    must_pass(program("promtool"), "test", "rules", "pipe_alerts_test.yaml", cwd=PROMETHEUS)
    tested = {
        case["alertname"]
        for test in read_yaml(PROMETHEUS / "pipe_alerts_test.yaml")["tests"]
        for case in test["alert_rule_test"]
        if case["exp_alerts"]
    }
    assert tested == {rule["alert"] for rule in RULES}


def test_the_alerts_tests_notice_another_threshold(tmp_path: Path) -> None:
    for name, old, new in (
        ("pipe_alerts.yaml", "seconds > 300", "seconds > 299"),
        ("pipe_alerts_test.yaml", "", ""),
    ):
        (tmp_path / name).write_text((PROMETHEUS / name).read_text().replace(old, new))
    done = run(program("promtool"), "test", "rules", "pipe_alerts_test.yaml", cwd=tmp_path)
    assert done.returncode == 1
    assert "OplogPipeSinkLags" in done.stdout + done.stderr


def test_every_metric_of_an_alert_is_exported() -> None:
    asked = set(re.findall(r"\boplog_pipe_\w+", " ".join(rule["expr"] for rule in RULES)))
    assert len(asked) > 3
    assert asked - exported() == set()


def test_the_guide_lists_each_alert_with_its_severity() -> None:
    listed = dict(re.findall(r"^\| `(OplogPipe\w+)` \| (\w+) \|", GUIDE.read_text(), re.MULTILINE))
    assert listed == {rule["alert"]: rule["labels"]["severity"] for rule in RULES}
