"""The end of a long run tells which files and tests took longest."""

import io

import pytest

from tests.kits.run.durations import FILES, SHORTEST, TESTS, Durations


def summary(config: pytest.Config, **seconds: float) -> list[str]:
    """Return the summary after three tests of these files, which took so long together."""
    durations = Durations()
    for name, spent in seconds.items():
        for test in "abc":
            for when in ("setup", "call", "teardown"):
                durations.pytest_runtest_logreport(
                    pytest.TestReport(
                        f"tests/{name}.py::{test}", ("", 0, ""), {}, "passed", None,
                        when, duration=spent / 9,
                    )
                )  # fmt: skip
    written = io.StringIO()
    durations.pytest_terminal_summary(pytest.TerminalReporter(config, written))
    return written.getvalue().splitlines()


def test_the_slowest_files_and_tests_are_told_with_the_seconds_of_all_phases(
    pytestconfig: pytest.Config,
) -> None:
    many = {f"test_{number}": 9.0 * number for number in range(1, 2 * FILES)}
    first, *rest = summary(pytestconfig, **many)
    assert "files that took longest" in first
    assert rest[:2] == ["  261.0 s  tests/test_29.py", "  252.0 s  tests/test_28.py"]
    assert "tests that took longest" in rest[FILES]
    assert rest[FILES + 1] == "   87.0 s  tests/test_29.py::a"
    assert len(rest) == FILES + 1 + TESTS


def test_a_short_run_has_no_summary(pytestconfig: pytest.Config) -> None:
    assert summary(pytestconfig, test_a=SHORTEST - 1) == []
