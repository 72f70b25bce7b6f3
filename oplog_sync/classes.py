"""A class data archive: Java maps Spark's classes instead of reading and checking each."""

import hashlib
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pyspark

# Java says at each start if it cannot use the file, and lists classes that do not fit in it.
SILENCE = "-Xlog:cds=off -Xlog:cds+dynamic=off"

# Without links, as Java names it: it maps the classes only under the same names.
SPARK = Path(pyspark.__file__).resolve().parent

_LEFT_SECONDS = 86_400

# The variables with options of Java.
JAVA_OPTIONS = ("SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
_CHOSEN = ("-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit", "-Xshare:")


class ClassArchive(NamedTuple):
    """``options``: of Java, to use the archive or to write it.

    ``part``: the file that Java writes at its end, None if the archive exists.
    """

    options: str
    file: Path
    part: Path | None

    def keep(self) -> None:
        """Give the written file its name after the end of Java. Without a file do nothing."""
        if self.part is not None:
            with suppress(OSError):
                size = self.part.stat().st_size
                _note(self.file).write_text(str(size))
                self.part.replace(self.file)  # other runs see a whole file or none

    def drop(self) -> None:
        if self.part is not None:
            with suppress(OSError):
                self.part.unlink()


def find_archive(java_version: str, environ: Mapping[str, str]) -> ClassArchive | None:
    """Return the archive of this Java and this Spark in the user's cache. The first call notes it.

    ``java_version``: from ``check_java``. None if the user's options of Java choose an
    archive, if the cache cannot be written, or at the first call. An archive that does not fit has
    no effect.
    """
    if any(chosen in environ.get(name, "") for name in JAVA_OPTIONS for chosen in _CHOSEN):
        return None
    folder = Path(environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", ""), ".cache"))
    if not folder.is_absolute() or any(each.isspace() for each in str(folder)):
        return None
    folder = folder / "oplog-sync"
    try:
        built = (SPARK / "jars").stat().st_mtime_ns
        versions = f"{SPARK} {pyspark.__version__} {built} {java_version}"
        key = hashlib.sha256(versions.encode()).hexdigest()[:16]
        file = folder / f"spark-{key}.jsa"
        for left in folder.glob("*.part"):  # of killed runs
            if time.time() - left.stat().st_mtime > _LEFT_SECONDS:
                left.unlink()
        note = _note(file)
        # Java crashes if its end is missing.
        if file.exists() and note.exists() and note.read_text() == str(file.stat().st_size):
            return ClassArchive(f"-XX:SharedArchiveFile={file} {SILENCE}", file, None)
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            return None
        # The second run writes it: a run in a new container would pay for each start.
        if not note.exists():
            note.touch()
            return None
    except OSError:
        return None
    part = folder / f"{file.name}.{os.getpid()}.part"
    return ClassArchive(f"-XX:ArchiveClassesAtExit={part} {SILENCE}", file, part)


def _note(file: Path) -> Path:
    """Return the file that says that a run was seen, and the size of the archive."""
    return file.with_suffix(".seen")
