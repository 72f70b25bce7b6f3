"""The files of `deploy/` and the programs that check them."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tests.kits.agents.agent import DEADLINE
from tests.kits.paths import ROOT

DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes/base"
_CACHE = ROOT / ".cache/debian/usr"


def program(name: str) -> str:
    """Return the path of a program: from PATH, beside this Python, or from `tests/setup`.

    Skip the test if it is missing.
    """
    folders = [
        os.environ.get("PATH", ""),
        str(Path(sys.executable).parent),
        str(_CACHE / "bin"),
        str(_CACHE / "sbin"),
    ]
    found = shutil.which(name, path=os.pathsep.join([*folders, "/usr/sbin"]))
    if found is None:
        pytest.skip(f"{name} is missing: `make test` installs it on Debian")
    return found


def run(
    *command: str | Path, cwd: Path | None = None, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd, capture_output=True, text=True, check=False, timeout=4 * DEADLINE,
        env=None if environ is None else {**os.environ, **environ},
    )  # fmt: skip


def must_pass(
    *command: str | Path, cwd: Path | None = None, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    done = run(*command, cwd=cwd, environ=environ)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done


def fits(schema: str, path: Path) -> bool:
    """Return True if the file fits this schema of check-jsonschema, False if it does not."""
    # A check of the format "iri", which no schema here has: it builds a parser for three seconds.
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    from check_jsonschema import main as check_jsonschema  # its import takes a second

    done = CliRunner().invoke(check_jsonschema, ["--builtin-schema", f"vendor.{schema}", str(path)])
    assert done.exit_code in (0, 1), done.output
    return done.exit_code == 0


def check_manifests(resources: Iterable[Mapping[str, Any]], version: str) -> None:
    """Raise ValueError if the API of this version of Kubernetes refuses a resource."""
    import kubernetes_validate  # its import takes a second

    for each in resources:
        try:
            kubernetes_validate.validate(each, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            raise ValueError(f"{each['kind']}: {error.message}") from error


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def manifests(*names: str) -> list[dict[str, Any]]:
    """Return the resources of these files in `deploy/kubernetes/base`; by default all of them."""
    names = names or tuple(read_yaml(KUBERNETES / "kustomization.yaml")["resources"])
    return [each for name in names for each in yaml.safe_load_all((KUBERNETES / name).read_text())]


def pod_spec(manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    spec: dict[str, Any] = manifest.get("spec", {})
    spec = spec.get("jobTemplate", {}).get("spec", spec)
    pod: dict[str, Any] | None = spec.get("template", {}).get("spec")
    return pod


def texts(paths: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts:
                yield file, file.read_text()
