"""Print the version of the project, or set it in all packages.

The version is kept in `oplogd/__init__.py`. A package that is built on its own holds a copy.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KEPT = "oplogd/__init__.py"
PYTHON = r'^__version__ = "(.+)"$'
# Path of a copy -> a pattern with the version as its only group.
COPIES = {
    "clients/python/oplogc/__init__.py": PYTHON,
    "clients/js/package.json": r'^  "version": "(.+)",$',
    "clients/go/version.go": r'^const Version = "(.+)"$',
    "clients/php/src/Version.php": r"const VERSION = '(.+)'",
}


def version(path: str = KEPT, pattern: str = PYTHON) -> str:
    """Return the version in one file."""
    (found,) = re.findall(pattern, (ROOT / path).read_text(), re.MULTILINE)
    return str(found)


def set_version(new: str) -> None:
    for path, pattern in {KEPT: PYTHON, **COPIES}.items():
        text = (ROOT / path).read_text()
        match = re.search(pattern, text, re.MULTILINE)
        assert match, f"{path} has no version"
        (ROOT / path).write_text(text[: match.start(1)] + new + text[match.end(1) :])


def main() -> None:
    if len(sys.argv) == 1:
        print(version())
    elif re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", sys.argv[1]):
        set_version(sys.argv[1])
    else:
        sys.exit(f"{sys.argv[1]} is no version; write it as 1.2.3 or 1.2.3rc1")


if __name__ == "__main__":
    main()
