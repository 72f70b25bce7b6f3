"""Folders of the project."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
# Programs that the tests have built or downloaded.
CACHE = ROOT / ".cache"
