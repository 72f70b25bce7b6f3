"""A run in which no test may be skipped."""

import os

import pytest

# Variable of the environment. `.ci/run` sets it.
REQUIRE_ALL = "OPLOG_TEST_REQUIRE_ALL"
# Real input is no part of the project: without OPLOG_SHARED its tests may be skipped.
NO_INPUT = "no real input"


class RequireAll:
    """Fails the run if a test was skipped. Sees the reports of all processes."""

    def __init__(self) -> None:
        self._skipped: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        # An expected failure is reported as skipped too, although it ran.
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = (
                report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            )
            if NO_INPUT not in reason or "OPLOG_SHARED" in os.environ:
                self._skipped[report.nodeid] = reason

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._skipped and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._skipped:
            terminalreporter.section(f"skipped, but {REQUIRE_ALL} is set", red=True, bold=True)
            for nodeid, reason in self._skipped.items():
                terminalreporter.line(f"{nodeid}: {reason}")
