"""Print the version of the project, or set it in all packages.

The version is kept in `oplogd/__init__.py`. A package that is built on its own holds a copy. Extras
that need the Python client name it in the same version.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KEPT = "oplogd/__init__.py"
PYTHON = r'^__version__ = "(.+)"$'
# Path of a copy -> a pattern with the version as its only group. A file may hold it several times.
COPIES = {
    "pyproject.toml": r'^    "oplogc==(.+)",$',
    "clients/python/oplogc/__init__.py": PYTHON,
    "clients/js/package.json": r'^  "version": "(.+)",$',
    "clients/go/version.go": r'^const Version = "(.+)"$',
    "clients/php/src/Version.php": r"const VERSION = '(.+)'",
}


def version(path: str = KEPT, pattern: str = PYTHON) -> str:
    """Return the version in one file."""
    (found,) = set(re.findall(pattern, (ROOT / path).read_text(), re.MULTILINE))
    return str(found)


def set_version(new: str) -> None:
    for path, pattern in {KEPT: PYTHON, **COPIES}.items():
        text = (ROOT / path).read_text()
        found = [match.span(1) for match in re.finditer(pattern, text, re.MULTILINE)]
        assert found, f"{path} has no version"
        for start, end in reversed(found):
            text = text[:start] + new + text[end:]
        (ROOT / path).write_text(text)


def main() -> None:
    if len(sys.argv) == 1:
        print(version())
    elif re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", sys.argv[1]):
        set_version(sys.argv[1])
    else:
        sys.exit(f"{sys.argv[1]} is no version; write it as 1.2.3 or 1.2.3rc1")


if __name__ == "__main__":
    main()
