"""Build every package in `dist/`, check it, install it into an empty environment, and try it.

Needs npm beside Python, and a package index for the libraries that the packages need.
"""

import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

from scripts.trial import try_first_screen
from scripts.version import version

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
TRIAL = ROOT / "build" / "trial"
PYTHON_PACKAGES = {"oplog": ROOT, "oplogc": ROOT / "clients/python"}
MODULES = {
    "oplog": (
        *("oplogd", "oplog_kit", "oplog_pipe", "oplog_relay", "oplog_sync"),
        "pyspark_oplog",
    ),
    "oplogc": ("oplogc",),
}
COMMANDS = ("oplogd", "oplog-pipe", "oplog-relay", "oplog-sync", "oplog-tail", "oplogctl")
# Files that a package must not hold.
UNWANTED = re.compile(r"(^|/)(tests?|__pycache__|node_modules|\.[a-z_]+_cache)(/|$)|\.pyc$|\.db$")
# The validator's grammar of addresses takes 6 s, ten times as long as all the rest.
CYCLONEDX = """
import runpy, sys
sys.modules["rfc3987_syntax"] = None
runpy.run_module("cyclonedx_py", run_name="__main__", alter_sys=True)
"""
NO_ADDRESS = re.compile(r'[\s<>"{}|\\^`]')


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Run a command and return its output. End the program with its output if it fails."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def python(*arguments: str | Path, cwd: Path = ROOT) -> str:
    return run(sys.executable, *arguments, cwd=cwd)


def build() -> None:
    for folder in (DIST, ROOT / "build", ROOT / "clients/python/build"):
        shutil.rmtree(folder, ignore_errors=True)
    DIST.mkdir()
    for folder in PYTHON_PACKAGES.values():  # each wheel is built from its source package
        python("-m", "build", "--no-isolation", "--outdir", DIST, folder)
    npm = shutil.which("npm") or sys.exit("npm is missing: install it to pack clients/js")
    pack = (npm, "pack", "--silent", "--json", "--pack-destination", DIST)
    packed = run(*pack, cwd=ROOT / "clients/js")
    check_names("npm", (file["path"] for file in json.loads(packed)[0]["files"]))


def check_names(package: str, names: Iterable[str]) -> None:
    """End with an error if the package holds an unwanted file, or no licence."""
    names = list(names)
    if found := [name for name in names if UNWANTED.search(name)]:
        sys.exit(f"{package} holds {found}")
    if not any(name.rpartition("/")[2] == "LICENSE" for name in names):
        sys.exit(f"{package} holds no LICENSE")


def check() -> None:
    python("-m", "twine", "check", "--strict", *DIST.glob("*.whl"), *DIST.glob("oplog*.tar.gz"))
    for name, modules in MODULES.items():
        (wheel,) = DIST.glob(f"{name}-{version()}-*.whl")
        names = zipfile.ZipFile(wheel).namelist()
        check_names(wheel.name, names)
        top = {each.partition("/")[0] for each in names}
        if top != {*modules, f"{name}-{version()}.dist-info"}:
            sys.exit(f"{wheel.name} holds {sorted(top)}")
        with tarfile.open(DIST / f"{name}-{version()}.tar.gz") as source:
            check_names(f"{name}-{version()}.tar.gz", source.getnames())


def install() -> Path:
    """Install the wheels into an empty environment and return the folder of its commands."""
    python("-m", "venv", "--without-pip", TRIAL)
    bin_ = TRIAL / "bin"
    pip = ("-m", "pip", "--python", bin_ / "python", "install")
    options = ("-q", "--disable-pip-version-check", "--no-compile", "-c", ROOT / "constraints.txt")
    (agent,) = DIST.glob("oplog-*.whl")
    (client,) = DIST.glob("oplogc-*.whl")
    python(*pip, *options, f"{agent}[avro,jwt,mongo,pipe,relay]", client, cwd=TRIAL)
    for name in COMMANDS:
        if run(bin_ / name, "--version", cwd=TRIAL) != f"{name} {version()}\n":
            sys.exit(f"{name} --version is not {version()}")
    return bin_


def list_components(bin_: Path) -> None:
    """Write the software bill of materials: the packages and all they were installed with."""
    python(
        *("-c", CYCLONEDX, "environment", bin_ / "python"),
        *("--pyproject", ROOT / "pyproject.toml", "--output-reproducible"),
        *("--output-format", "JSON", "--output-file", DIST / f"oplog-{version()}.cdx.json"),
    )
    path = DIST / f"oplog-{version()}.cdx.json"
    found = publishable(json.loads(path.read_text()))
    path.write_text(json.dumps(found, indent=2) + "\n")
    names = {component["name"] for component in found["components"]}
    if not names > {"oplogc", "pymongo", "uvicorn"}:
        sys.exit(f"the bill of materials has only {sorted(names)}")
    if wrong := [url for url in addresses(found) if NO_ADDRESS.search(url)]:
        sys.exit(f"the bill of materials has addresses that are none: {wrong}")


def addresses(bill: dict[str, Any]) -> list[str]:
    references = [each.get("externalReferences", []) for each in bill["components"]]
    return [each["url"] for each in chain.from_iterable(references)]


def publishable(bill: dict[str, Any]) -> dict[str, Any]:
    """Return the bill with the project's version and without paths of the building machine."""
    for component in bill["components"]:
        references = component.get("externalReferences", [])
        kept = [each for each in references if not each["url"].startswith("file:")]
        if references:
            component["externalReferences"] = kept
    bill["metadata"]["component"]["version"] = version()  # dynamic in pyproject.toml: not read
    return bill


def main() -> None:
    build()
    check()
    bin_ = install()
    try_first_screen(ROOT / "README.md", bin_, TRIAL)
    list_components(bin_)
    for path in sorted(DIST.iterdir()):
        print(f"{path.relative_to(ROOT)}  {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
