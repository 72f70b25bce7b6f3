"""The summary at the end of a run: the files and the tests that took longest."""

from collections import Counter

import pytest

FILES = 15
TESTS = 5
# Seconds of all tests together. A shorter run has no summary.
SHORTEST = 60


class Durations:
    """Adds up the seconds of set-up, call and tear-down. Sees the reports of all workers."""

    def __init__(self) -> None:
        self._files: Counter[str] = Counter()
        self._tests: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        milliseconds = round(report.duration * 1_000)
        self._files[report.nodeid.partition("::")[0]] += milliseconds
        self._tests[report.nodeid] += milliseconds

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._files.total() < SHORTEST * 1_000:
            return
        for title, counted, most in (("files", self._files, FILES), ("tests", self._tests, TESTS)):
            terminalreporter.section(f"{title} that took longest")
            for name, milliseconds in counted.most_common(most):
                terminalreporter.write_line(f"{milliseconds / 1_000:7.1f} s  {name}")
