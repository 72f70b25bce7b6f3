"""The programs under test: the examples in Go and PHP, and small drivers of the libraries in Python
and JavaScript.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import oplogc
from tests.kits.paths import ROOT
from tests.kits.servers.mongo import GO_FLAGS, go_program

# The folder of the clients. The variable names the folder of another checkout.
CLIENTS = Path(os.environ.get("OPLOG_CONFORMANCE_CLIENTS") or ROOT / "clients").resolve()

DRIVERS = Path(__file__).parent / "drivers"
EVERY_CLIENT = ("python", "python-async", "javascript", "go", "php")
# The drivers are forks if the tests import the same client, else new processes.
_IS_IMPORTED = Path(oplogc.__file__).resolve().is_relative_to(CLIENTS / "python")
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")},
    **({} if _IS_IMPORTED else {"PYTHONPATH": str(CLIENTS / "python")}),
    "OPLOG_CLIENTS": str(CLIENTS),
}


def command(client: str, role: str, go_folder: Path) -> list[str]:
    match client:
        case "python":
            return [sys.executable, str(DRIVERS / f"{role}.py")]
        case "python-async":
            return [sys.executable, str(DRIVERS / f"{role}.py"), "--async"]
        case "javascript":
            return [found("node"), str(DRIVERS / f"{role}.mjs")]
        case "go":
            return [str(go_folder / role)]
        case "php":
            return [found("php"), str(CLIENTS / "php" / "bin" / f"{role}.php")]
    raise ValueError(client)


def found(program: str) -> str:
    path = shutil.which(program)
    assert path, f"{program} is missing: see tests/setup"
    return path


def build_go(folder: Path, roles: set[str]) -> None:
    # It has no dependencies, so it needs no network.
    environ = {**os.environ, "GOPROXY": "off", "GOFLAGS": GO_FLAGS, "CGO_ENABLED": "0"}
    build = [go_program(), "build", "-o", f"{folder}/", *(f"./{role}" for role in roles)]
    done = subprocess.run(build, cwd=CLIENTS / "go", env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
