"""Every package has the version of the project."""

import json
import re
from pathlib import Path

import oplogc
import oplogd
from tests.kits.paths import ROOT

CLIENTS = ROOT / "clients"


def constant(path: Path, pattern: str) -> str:
    found = re.search(pattern, path.read_text(encoding="utf-8"))
    assert found, path
    return found[1]


def test_the_python_client_has_the_version_of_the_project() -> None:
    assert oplogc.__version__ == oplogd.__version__


def test_the_javascript_client_has_the_version_of_the_project() -> None:
    assert json.loads((CLIENTS / "js/package.json").read_text())["version"] == oplogd.__version__


def test_the_go_client_has_the_version_of_the_project() -> None:
    found = constant(CLIENTS / "go/version.go", r'const Version = "(.+)"')
    assert found == oplogd.__version__


def test_the_php_client_has_the_version_of_the_project() -> None:
    found = constant(CLIENTS / "php/src/Version.php", r"const VERSION = '(.+)'")
    assert found == oplogd.__version__
    assert "version" not in json.loads((CLIENTS / "php/composer.json").read_text())
