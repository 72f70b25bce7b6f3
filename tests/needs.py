"""The marks for the needs of a test. They follow from its folder, fixtures and parameters.

A test that starts a program without the mark for it fails, and so does a unit test that starts
any process or opens a network connection. Marks that no rule can give are set by hand.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatch
from functools import cache
from pathlib import PurePath
from typing import Any

import pytest

FOLDERS = {"browser": "browser", "mongo": "mongo", "sync": "spark", "soak": "slow"}
FIXTURES = {
    "browser": "browser",
    "capped_url": "mongo",
    "ferret": "mongo",
    "go_example": "go",
    "java": "mongo",
    "node": "node",
    "opensearch": "opensearch",
    "php_example": "php",
    "plain_url": "mongo",
    "own_postgres": "postgres",
    "postgres": "postgres",
    "spark": "spark",
}
PARAMETERS = {
    "capped": "mongo",
    "elasticsearch": "opensearch",
    "go": "go",
    "go_example": "go",
    "javascript": "node",
    "js": "node",
    "mongo-capped": "mongo",
    "mongo-plain": "mongo",
    "mongo-plain-small": "mongo",
    "mongodb": "mongo",
    "php": "php",
    "php_example": "php",
    "plain": "mongo",
    "plain-java": "mongo",
    "postgres": "postgres",
}
# Folders in which a parameter of these names means one of the needs above.
CHOOSING = ("clients", "conformance", "contract", "e2e", "pipe", "relay", "store", "stream", "sync")
# Program -> the mark of a test that starts it. Agents and shells need no mark.
PROGRAMS = {
    "chromium": "browser",
    "ferretdb": "mongo",
    "go": "go",
    "initdb": "postgres",
    "nginx": "nginx",
    "node": "node",
    "npm": "node",
    "php": "php",
    "postgres": "postgres",
    "spark-submit": "spark",
}
# Files of the unit tests, below tests/. A test in them that needs a process has the mark `process`.
UNIT = (
    "clients/test_outbox*.py",
    "clients/test_positions*.py",
    "clients/test_sse*.py",
    "clients/test_topics_messages.py",
    "clients/test_topics_newest.py",
    "clients/test_topics_queue.py",
    "deploy/test_kubernetes.py",
    "deploy/test_names.py",
    "ingest/test_fenced.py",
    "ingest/test_http_body*.py",
    "ingest/test_queue*.py",
    "ingest/test_spool*.py",
    "ingest/test_writer*.py",
    "leases/test_*.py",
    "pipe/commitlog/test_*.py",
    "pipe/sinks/test_factory.py",
    "pipe/sinks/test_file.py",
    "pipe/test_cli*.py",
    "pipe/test_config*.py",
    "pipe/test_design_walk.py",
    "pipe/test_docs.py",
    "pipe/test_engine_*.py",
    "pipe/test_metrics_docs.py",
    "pipe/test_operate.py",
    "pipe/test_progress.py",
    "pipe/test_recorder.py",
    "pipe/test_steps.py",
    "pipe/test_streams.py",
    "pointers/test_*.py",
    "relay/db/test_url.py",
    "relay/test_checker.py",
    "relay/test_cli.py",
    "relay/test_cli_docs.py",
    "relay/test_config.py",
    "relay/test_encode.py",
    "relay/test_engine_*.py",
    "relay/test_flow.py",
    "relay/test_leadership.py",
    "relay/test_metrics.py",
    "relay/test_note.py",
    "relay/test_relay*.py",
    "relay/test_status.py",
    "settings/test_job_settings.py",
    "settings/test_table.py",
    "settings/test_values.py",
    "store/test_*.py",
    "stream/test_*.py",
    "test_design_walk.py",
    "test_durations.py",
    "test_event_id.py",
    "test_health.py",
    "test_isolation.py",
    "test_logs.py",
    "test_message.py",
    "test_message_id.py",
    "test_needs.py",
    "test_nesting.py",
    "test_operation.py",
    "test_pointer.py",
    "test_rates.py",
    "test_repository.py",
    "test_timestamps.py",
    "test_topic_names.py",
    "topics/test_avro.py",
    "topics/test_avro_damage.py",
    "topics/test_counters.py",
    "topics/test_json_codec.py",
    "topics/test_pointer_bodies.py",
    "topics/test_poll_committed.py",
    "topics/test_poll_model.py",
    "topics/test_poll_pointers*.py",
    "topics/test_poll_transactions.py",
    "topics/test_publish.py",
    "topics/test_publish_fenced.py",
    "topics/test_rollback_bodies.py",
    "topics/test_stream_request.py",
    "topics/test_sweep_pace.py",
    "transactions/test_*.py",
    "web/test_attempts.py",
    "web/test_consumers.py",
    "web/test_forwarded.py",
    "web/test_origin.py",
    "web/test_redact.py",
    "web/test_signing.py",
)
_NETWORK = ("socket.bind", "socket.connect", "socket.getaddrinfo")
_STARTS = ("os.fork", "os.posix_spawn", "os.system", "subprocess.Popen")


def needs(path: str, fixtures: list[str], parameters: Mapping[str, object]) -> set[str]:
    """Return the marks that follow from a test's path below tests/, fixtures and parameters."""
    folder = path.partition("/")[0]
    found = {FOLDERS[folder]} if folder in FOLDERS else set()
    found |= {FIXTURES[name] for name in fixtures if name in FIXTURES}
    if folder in CHOOSING:
        values = [*parameters.values()]
        for name in ("holder", "language"):
            values += [getattr(value, name, None) for value in parameters.values()]
        found |= {
            PARAMETERS[each] for each in values if isinstance(each, str) and each in PARAMETERS
        }
    return found


@cache
def is_unit_file(path: str) -> bool:
    """Return True if the tests of this file, given below tests/, are unit tests."""
    return any(fnmatch(path, pattern) for pattern in UNIT)


def mark(item: pytest.Item, root: PurePath) -> None:
    path = item.path.relative_to(root).as_posix()
    call = getattr(item, "callspec", None)
    for name in needs(path, getattr(item, "fixturenames", []), call.params if call else {}):
        item.add_marker(name)
    marks = {each.name for each in item.iter_markers()}
    if is_unit_file(path) and not marks & {"process", *FIXTURES.values(), *PROGRAMS.values()}:
        item.add_marker("unit")


class Guard:
    """Fails a test that uses more than its marks tell."""

    def __init__(self) -> None:
        self._allowed: set[str] | None = None
        self._is_unit = False
        self._found: list[str] = []
        sys.addaudithook(self._audit)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        # A fixture of a whole module may start a program for another test of the module.
        self._of_module: dict[str, set[str]] = {}
        for item in session.items:
            marks = self._of_module.setdefault(str(item.path), set())
            marks.update(each.name for each in item.iter_markers())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        with self._watch(item, self._of_module[str(item.path)]):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        with self._watch(item, {each.name for each in item.iter_markers()}):
            return (yield)

    @contextmanager
    def _watch(self, item: pytest.Item, allowed: set[str]) -> Iterator[None]:
        self._allowed = allowed
        self._is_unit = item.get_closest_marker("unit") is not None
        try:
            yield
        finally:
            self._allowed = None
            found, self._found = self._found, []
        if found:
            pytest.fail("; ".join(dict.fromkeys(found)), pytrace=False)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._allowed is None:
            return
        if self._is_unit and event in (*_NETWORK, *_STARTS):
            self._found.append(f"a unit test used {event}: see UNIT in tests/needs.py")
        if event == "subprocess.Popen":
            name = needed_by(*arguments[:2])
            if name is not None and name not in self._allowed:
                self._found.append(f"this test needs the mark {name}")


def needed_by(executable: object, arguments: object) -> str | None:
    """Return the mark for starting this program, given as to ``subprocess.Popen``."""
    first = arguments if isinstance(arguments, str | bytes | os.PathLike) else None
    if first is None and isinstance(arguments, list | tuple):
        first = arguments[0]
    program = executable if isinstance(executable, str | bytes | os.PathLike) else first
    path = PurePath(os.fsdecode(program or ""))
    if "playwright" in path.parts:  # brings a Node of its own
        return "browser"
    return PROGRAMS.get(path.name)
