"""The start of the command: local files of the dump, and the class data archive of Java."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from oplog_sync import session
from oplog_sync.classes import JAVA_OPTIONS, SILENCE, find_archive
from oplog_sync.cli import main
from oplog_sync.dump import local
from oplog_sync.dump.local import is_small, refuse_missing
from oplog_sync.errors import DumpError
from oplog_sync.jvm import JAVA
from tests.kits.agents.agent import DEADLINE
from tests.kits.spark.class_data import written
from tests.kits.spark.helpers import append, operation


@pytest.mark.parametrize(
    "name", ["none.jsonl", "none/", "*.jsonl.gz", "x.jsonl/y", "file://{}/none"]
)
def test_a_missing_local_dump_is_named_before_java_starts(
    tmp_path: Path,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    append(tmp_path / "oplog.db", [operation("insert", "video", "1")])
    (tmp_path / "x.jsonl").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "start", lambda *_: pytest.fail("Java was started"))
    dump = name.format(tmp_path)
    with pytest.raises(SystemExit) as exited:
        main(["x.jsonl", dump])
    assert exited.value.code == 1
    shown = dump.removeprefix("file://")
    told = f"oplog-sync: the dump cannot be read: there is no {shown}\n"
    assert capsys.readouterr().err == told


def test_names_that_may_exist_are_left_to_hadoop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.jsonl", "b[1].jsonl", "dump-12:30.jsonl", ".hidden"):
        Path(name).touch()
    there = ["a.jsonl", "./a.jsonl", "*.jsonl", "?.jsonl", "b[1].jsonl", "dump-12:30.jsonl", "-"]
    unclear = ["{a,c}.jsonl", "[^b].jsonl", "\\a.jsonl", "s3a://b/x", "hdfs:/x", "file://host/x"]
    refuse_missing([*there, *unclear, ".hidd*", f"file:{tmp_path}", f"file://{tmp_path}"], {})
    for name in ("HADOOP_CONF_DIR", "PYSPARK_GATEWAY_PORT"):
        refuse_missing(["none"], {name: "x"})
    with pytest.raises(DumpError):
        refuse_missing(["a.jsonl", "none"], {})


def test_only_a_local_dump_of_few_bytes_is_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "SMALL_BYTES", 100)
    (tmp_path / "dump").mkdir()
    (tmp_path / "dump/a.jsonl").write_bytes(b"x" * 60)
    (tmp_path / "dump/b.jsonl.gz").write_bytes(b"x" * 5)
    folder = str(tmp_path / "dump")
    assert is_small([f"{folder}/a.jsonl"])
    assert is_small([f"{folder}/*.gz"])
    assert not is_small([folder])
    assert not any(is_small([name]) for name in ("-", "s3a://b/x", f"{folder}/none", ""))
    assert not is_small([])


def test_each_java_has_its_archive_and_a_whole_one_is_used(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    (tmp_path / "oplog-sync").mkdir()
    left, written = (tmp_path / f"oplog-sync/spark-0.jsa.{n}.part" for n in (1, 2))
    left.touch()
    written.touch()
    os.utime(left, (0, 0))  # a killed run left it
    assert find_archive("17.0.1", environ) is find_archive("21", environ) is None  # noted
    first, other = find_archive("17.0.1", environ), find_archive("21", environ)
    assert first is not None
    assert other is not None
    assert first.part is not None
    assert first.file != other.file
    assert (left.exists(), written.exists()) == (False, True)
    assert first.options == f"-XX:ArchiveClassesAtExit={first.part} {SILENCE}"
    first.keep()  # Java has written nothing
    assert not first.file.exists()
    first.part.write_bytes(b"classes")
    first.keep()
    left.touch()
    os.utime(left, (0, 0))
    again = find_archive("17.0.1", environ)
    assert not left.exists()
    assert again is not None
    assert again.options == f"-XX:SharedArchiveFile={first.file} {SILENCE}"
    assert again.part is None
    first.file.with_suffix(".seen").unlink()
    assert find_archive("17.0.1", environ) is None  # noted once more
    first.file.write_bytes(b"class")  # its end is missing
    cut = find_archive("17.0.1", environ)
    assert cut is not None
    assert cut.part is not None


@pytest.mark.parametrize(
    ("variables", "file", "is_ours"),
    [
        ({}, None, True),
        ({"SPARK_SUBMIT_OPTS": "-Xmx1g"}, None, True),
        ({"_JAVA_OPTIONS": "-XX:+UseG1GC"}, None, False),
        ({"JDK_JAVA_OPTIONS": "@options"}, None, False),
        ({"PYSPARK_SUBMIT_ARGS": "--conf x=-XX:+UseZGC"}, None, False),
        ({}, "spark-env.sh", False),
        ({}, "spark-defaults.conf", False),
        ({}, "java-opts", False),
    ],
)
def test_java_gets_no_second_garbage_collector(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    file: str | None,
    is_ours: bool,
) -> None:
    for name in (*JAVA_OPTIONS, "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if file is not None:
        (tmp_path / file).touch()
    assert session._chooses_collector() is not is_ours


@pytest.mark.parametrize(
    ("target", "code", "told"),
    [
        ("/dev/full", 1, "oplog-sync: the job is done, but its result cannot be printed: "),
        (None, 0, ""),
    ],
)
def test_a_result_that_cannot_be_printed_is_no_traceback(
    target: str | None, code: int, told: str
) -> None:
    run = "import sys; from oplog_sync.cli import _show; sys.exit(_show('table'))"
    if target is None:
        source, out = os.pipe()
        os.close(source)
    else:
        out = os.open(target, os.O_WRONLY)
    with os.fdopen(out, "wb") as stdout:
        done = subprocess.run(
            [sys.executable, "-c", run], stdout=stdout, stderr=subprocess.PIPE, text=True,
            check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr.partition("[")[0]) == (code, told)


def test_the_last_lines_of_a_java_that_ends_have_passed_when_the_start_fails(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Our own line comes between the two parts of the warning, which is dropped."""
    copy = session._copy

    def late(source: int, target: int) -> None:
        time.sleep(0.1)  # the block below would have ended long before
        copy(source, target)

    monkeypatch.setattr(session, "_copy", late)
    monkeypatch.setattr(JAVA, "is_running", lambda: False)

    def fail() -> None:
        with session._without_warning() as stderr:
            os.write(stderr, b"WARNING: Using incubator modules: x")
            os.write(2, b"our reason\n")
            os.write(stderr, b"\nthe reason of Java\n")
            raise OSError("no Java")

    with pytest.raises(OSError, match="no Java"):
        fail()
    assert capfd.readouterr().err == "our reason\nthe reason of Java\n"


def test_a_signal_while_java_starts_leaves_no_process(tmp_path: Path) -> None:
    append(tmp_path / "oplog.db", [operation("insert", "video", "1")])
    (tmp_path / "dump.jsonl").touch()
    with subprocess.Popen(
        [sys.executable, "-m", "oplog_sync", "dump.jsonl"], cwd=tmp_path, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        try:
            deadline = time.monotonic() + DEADLINE
            while not _has_java(process.pid):
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.002)
            process.terminate()
            # Ends when the last process that writes there has ended.
            output, _ = process.communicate(timeout=DEADLINE)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 128 + signal.SIGTERM
    assert "oplog-sync: stopped by SIGTERM; run it again for the rest\n" in output
    assert "Traceback" not in output


def _has_java(parent: int) -> bool:
    """Return whether the process has started Java, which is not yet ready to be asked."""
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        with suppress(OSError):
            command = Path(f"/proc/{child}/cmdline").read_text().split("\0")
            if command[0].endswith("java") and "-version" not in command:
                return True
    return False


def test_a_cache_that_cannot_be_written_and_options_of_the_user_mean_no_archive(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    assert find_archive("17", {"XDG_CACHE_HOME": str(tmp_path / "file")}) is None
    assert find_archive("17", {"XDG_CACHE_HOME": str(tmp_path / "a b")}) is None
    assert find_archive("17", {}) is None
    chosen = {"XDG_CACHE_HOME": str(tmp_path), "JDK_JAVA_OPTIONS": "-Xshare:off"}
    assert find_archive("17", chosen) is None


def test_a_run_prints_only_lines_of_the_job_and_leaves_an_archive() -> None:
    found = written()
    # Java names the options that the tests give it.
    lines = [line for line in found.stderr.splitlines() if "JDK_JAVA_OPTIONS" not in line]
    assert len(lines) > 3
    assert [line for line in lines if not line.startswith("oplog-sync: ")] == []
    assert {each.suffix for each in Path(found.file).parent.iterdir()} == {".jsa", ".seen"}
