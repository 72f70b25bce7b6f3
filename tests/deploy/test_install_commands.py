"""No command installs a package of this project by name.

None is published, so such a command would fail or install a package of somebody else.
"""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from oplogd import __version__
from tests.kits.paths import ROOT
from tests.kits.processes.logged import DEADLINE

# The extras that need the Python client.
NEED_CLIENT = ("pipe", "relay")

# With its arguments, up to the end of the line or of the code in prose.
_COMMAND = re.compile(
    r"\b(?:pip3?|pipx|uv|poetry|pdm|conda|npm|npx|pnpm|yarn|bun|deno|go|composer)(?: pip| global)?"
    r" +(?:install|i|add|wheel|download|run|exec|dlx|get|require) +([^\n`]*)"
)
_EXTRA = re.compile(r"\boplog[a-z]*\[(?:[a-z, ]*,)?(?:pipe|relay|sync|dev)\b", re.IGNORECASE)


def own_names() -> set[str]:
    """Return all names of packages and commands of this project, normalized."""
    names = {"oplog", "oplog-client", "oplog-sync"}
    for path in tracked():
        if path.name == "pyproject.toml":
            project = tomllib.loads(path.read_text())["project"]
            names |= {project["name"], *project.get("scripts", {})}
        elif path.name in ("package.json", "composer.json"):
            names.add(json.loads(path.read_text())["name"])
        elif path.name == "go.mod" and "clients" in path.parts:
            names.add(path.read_text().split()[1])
    return {normal(name) for name in names}


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def normal(name: str) -> str:
    """Return a name as registries compare it, without extras and version."""
    name = re.split(r"[\[=<>~!;:]|(?<=.)@", name.strip("()'\"“”.,").lower())[0]
    return re.sub(r"[-_]+", "-", name)


def by_name(text: str, names: set[str]) -> Iterator[str]:
    """Yield the commands in the text that install one of these names from a registry."""
    text = text.replace("\\\n", " ")
    for match in _COMMAND.finditer(text):
        try:
            arguments = shlex.split(match[1], comments=True)
        except ValueError:  # the command stands in quotes itself
            arguments = match[1].split()
        for argument in arguments:
            if argument in ("&&", "||", "|", ";"):
                break
            wanted = normal(argument)
            if any(
                wanted == name or ("/" in name and wanted.startswith(f"{name}/")) for name in names
            ):
                yield match[0]
                break
    yield from (match[0] for match in _EXTRA.finditer(text))


def test_nothing_installs_a_package_of_this_project_by_name() -> None:
    names, found = own_names(), {}
    for path in tracked():
        if path == Path(__file__):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:  # a picture
            continue
        if commands := list(by_name(text, names)):
            found[path.relative_to(ROOT).as_posix()] = commands
    assert found == {}


def test_only_extras_require_a_package_of_this_project_and_in_their_own_version() -> None:
    for path in (path for path in tracked() if path.name == "pyproject.toml"):
        project = tomllib.loads(path.read_text())["project"]
        extras = project.get("optional-dependencies", {})
        found = {
            each
            for each in project["dependencies"]
            if normal(re.split(r"[ (]", each)[0]) in own_names()
        }
        assert found == set()
        needing = [extra for extra, names in extras.items() if f"oplogc=={__version__}" in names]
        assert needing == ([*NEED_CLIENT] if project["name"] == "oplog" else [])
        others = {each for names in extras.values() for each in names} - {f"oplogc=={__version__}"}
        assert {normal(re.split(r"[ (]", each)[0]) for each in others} & own_names() == set()


def without_client(text: str) -> Iterator[str]:
    """Yield the commands that install an extra without the folder of the client that it needs."""
    for match in _COMMAND.finditer(text.replace("\\\n", " ")):
        extras = ",".join(re.findall(r"\.\[([a-z,]+)\]", match[1])).split(",")
        if not {*NEED_CLIENT}.isdisjoint(extras) and "clients/python" not in match[1]:
            yield match[0]


def test_a_command_with_an_extra_that_needs_the_client_names_its_folder() -> None:
    # Otherwise pip would look for it in a registry.
    found = {
        path.relative_to(ROOT).as_posix(): commands
        for path in tracked()
        if path != Path(__file__) and path.suffix in (".md", ".py", ".env", ".service", "")
        if (commands := [*without_client(path.read_text(encoding="utf-8"))])
    }
    assert found == {}
    assert [*without_client("pip install -c constraints.txt '.[mongo,pipe]'")] != []


@pytest.mark.parametrize(
    "text",
    [
        "pip install oplog",
        "needs Java: `pip install 'oplog[sync]'`.",
        "f\"install oplog with its extra: pip install 'oplog[sync]'\"",
        "pip3 install -U oplogc==1.0",
        "pip install \\\n    -c constraints.txt Oplog_Sync",
        "uv pip install oplogc",
        "pip wheel --no-deps -w . oplog && mv oplog-*.whl oplog.zip",
        "npm install oplog-client@latest",
        "npm i --save oplog-client",
        "go get oplog.example/clients/producer@latest",
        "the Python that oplog[sync] is installed in",
        "pip install 'oplog[relay]'",
        "needs the package psycopg: install oplog[pipe]",
        "the extra is oplog[relay]",
        "install oplog-relay with: pip install oplog-relay",
        "`oplog[sync,relay]`",
    ],
)
def test_a_command_that_does_is_noticed(text: str) -> None:
    assert list(by_name(text, own_names() | {"oplog.example/clients"})) != []


@pytest.mark.parametrize(
    "text",
    [
        "pip install -c constraints.txt -e . -e ./clients/python",
        "pip install './clients/python' && oplog-tail",
        "pip install -c constraints.txt '.[sync]'",
        "pip install -c constraints.txt '.[relay]' ./clients/python",
        "pip wheel --no-deps -w . . && mv oplog-*.whl oplog.zip",
        "npm install ./clients/js",
        "go run ./producer -url http://localhost:8042",
        "docker run --detach --name oplogd oplogd",
    ],
)
def test_a_command_that_takes_the_checkout_is_not(text: str) -> None:
    assert list(by_name(text, own_names())) == []


def test_oplog_sync_without_its_extra_says_how_to_install_it() -> None:
    program = (
        "import sys; sys.modules['pyspark'] = None;"
        "from oplog_sync.cli import main; main(['dump.jsonl'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 1
    told = (
        "oplog-sync: pyspark\\S* is missing; in the checkout of oplog, run: "
        "pip install -c constraints.txt '.\\[sync\\]'\n"
    )
    assert re.fullmatch(told, done.stderr), done.stderr
