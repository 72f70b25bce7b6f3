"""The files of the repository: those in its root, and their sizes."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kits.paths import ROOT

MOST_BYTES = 1_000_000

# A file here is met by everybody who looks at the project. Another one has a reason.
IN_ROOT = {
    ".dockerignore", ".editorconfig", ".gitignore", ".pre-commit-config.yaml",
    "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "MANIFEST.in", "Makefile", "README.md",
    "SECURITY.md", "constraints.txt", "pyproject.toml",
}  # fmt: skip
FOLDERS = {
    ".ci", ".github", "clients", "deploy", "docs", "examples", "oplog_kit", "oplog_pipe",
    "oplog_relay", "oplog_sync", "oplogd", "pyspark_oplog", "scripts", "tests",
}  # fmt: skip


@pytest.fixture(scope="module")
def files() -> list[Path]:
    """Return the files of the repository, and those that a commit of everything would add."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("this folder is no repository, or there is no git")
    command = [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    return [Path(name) for name in listed.decode().split("\0") if (ROOT / name).is_file()]


@pytest.mark.process
def test_only_known_files_and_folders_lie_in_the_root(files: list[Path]) -> None:
    assert {path.name for path in files if len(path.parts) == 1} == IN_ROOT
    assert {path.parts[0] for path in files if len(path.parts) > 1} == FOLDERS


@pytest.mark.process
def test_no_file_is_large(files: list[Path]) -> None:
    sizes = {path: (ROOT / path).stat().st_size for path in files}
    assert {path: size for path, size in sizes.items() if size > MOST_BYTES} == {}
