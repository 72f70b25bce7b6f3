"""The programs of the environment that runs the tests."""

import shutil
import sys
from pathlib import Path


def python_program(name: str) -> str:
    """Return the path of a program that is installed beside this Python."""
    found = shutil.which(name, path=str(Path(sys.executable).parent))
    assert found, f"{name} is missing: run make with any target that installs the packages"
    return found
