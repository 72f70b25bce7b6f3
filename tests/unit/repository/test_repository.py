"""The files that a visitor of the repository meets, and the packages' metadata."""

import json
import re
import shutil
import tomllib
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet

import scripts.version
from scripts.version import COPIES, set_version, version
from tests.kits.deploy.files import fits
from tests.kits.paths import ROOT

PACKAGES = [ROOT / "pyproject.toml", ROOT / "clients/python/pyproject.toml"]
WORKFLOW = ROOT / ".github/workflows/check.yml"
AUDIT = ROOT / ".github/workflows/audit.yml"
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("[!c]*.yml"))
SCHEMAS = {
    WORKFLOW: "github-workflows",
    AUDIT: "github-workflows",
    ROOT / ".github/ISSUE_TEMPLATE/config.yml": "github-issue-config",
    **dict.fromkeys(FORMS, "github-issue-forms"),
}
# Documents that the documentation's own tests do not read.
VISITED = [
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    ROOT / "clients/python/README.md",
    ROOT / ".github/pull_request_template.md",
]


def project(path: Path) -> dict[str, Any]:
    return dict(tomllib.loads(path.read_text())["project"])


@pytest.mark.process  # not a process, but a socket: check-jsonschema opens one when imported
@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.name)
def test_the_schema_accepts_the_file_and_refuses_a_misspelt_member(
    path: Path, tmp_path: Path
) -> None:
    assert fits(SCHEMAS[path], path)
    misspelt = tmp_path / path.name
    text = re.sub(r"^(jobs|body|blank_issues_enabled):", r"\1x:", path.read_text(), flags=re.M)
    misspelt.write_text(text)
    assert text != path.read_text()
    assert not fits(SCHEMAS[path], misspelt)


def test_the_workflow_runs_the_checks_on_every_python_that_the_package_names() -> None:
    (job,) = yaml.safe_load(WORKFLOW.read_text())["jobs"].values()
    assert job["steps"][-1]["run"] == ".ci/run"
    named = [
        each.rpartition(" ")[2]
        for each in project(PACKAGES[0])["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", each)
    ]
    # A newer version may be on trial.
    assert job["strategy"]["matrix"]["python"][: len(named)] == named
    assert project(PACKAGES[0])["requires-python"] == f">={named[0]}"


def test_every_action_of_a_workflow_is_named_by_its_commit() -> None:
    for path in (WORKFLOW, AUDIT):
        used = re.findall(r"\buses: (.+)$", path.read_text(), re.MULTILINE)
        assert used
        for each in used:
            assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each), each


def test_every_package_takes_the_oldest_python_that_the_project_names() -> None:
    oldest = project(PACKAGES[0])["requires-python"].removeprefix(">=") + ".0"
    needed = {
        each.name: each.metadata["Requires-Python"]
        for each in distributions()
        if each.metadata["Requires-Python"]
    }
    assert {"pytest", "oplogc"} <= needed.keys()
    assert {
        name: versions for name, versions in needed.items() if oldest not in SpecifierSet(versions)
    } == {}


def test_developers_tools_are_no_extras_of_the_packages() -> None:
    extras = project(PACKAGES[0])["optional-dependencies"]
    assert {*extras} == {"avro", "jwt", "mongo", "pipe", "relay", "sync"}
    assert project(PACKAGES[1])["optional-dependencies"] == {"jwt": extras["jwt"]}


def test_the_workflow_has_the_node_that_the_javascript_package_needs() -> None:
    (job,) = yaml.safe_load(WORKFLOW.read_text())["jobs"].values()
    (version_,) = [
        step["with"]["node-version"] for step in job["steps"] if "node" in step.get("uses", "")
    ]
    needed = json.loads((ROOT / "clients/js/package.json").read_text())["engines"]["node"]
    assert needed.removeprefix(">=").partition(".")[0] == str(version_)


def test_the_checks_are_lint_and_the_test_command_of_the_readme() -> None:
    commands = re.findall(r"^make .*$", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    assert commands == ["make lint", "make test"]
    assert re.search(r"^make test\b", (ROOT / "README.md").read_text(), re.MULTILINE)


def test_the_hooks_are_local_and_run_lint() -> None:
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    assert [hook["entry"] for hook in repository["hooks"]] == ["make lint"]


def test_the_packages_have_one_version() -> None:
    assert {path: version(path, pattern) for path, pattern in COPIES.items()} == dict.fromkeys(
        COPIES, version()
    )
    for path in PACKAGES:
        assert project(path)["dynamic"] == ["version"]


def test_one_command_sets_every_copy_of_the_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("oplogd/__init__.py", *COPIES):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    monkeypatch.setattr(scripts.version, "ROOT", tmp_path)
    set_version("12.0.0rc1")
    assert {path: version(path, pattern) for path, pattern in COPIES.items()} == dict.fromkeys(
        COPIES, "12.0.0rc1"
    )
    extras = project(tmp_path / "pyproject.toml")["optional-dependencies"]
    assert [extra for extra in extras if "oplogc==12.0.0rc1" in extras[extra]] == ["pipe", "relay"]


def test_the_packages_have_the_same_metadata_for_strangers() -> None:
    one, other = map(project, PACKAGES)
    for name in ("license", "license-files", "authors", "requires-python", "readme"):
        assert one[name] == other[name], name
    assert one["license"] == "MIT"
    assert one["authors"] == [{"name": "the oplog authors"}]
    for metadata in (one, other):
        assert metadata["keywords"] == sorted(metadata["keywords"])
        assert "Typing :: Typed" in metadata["classifiers"]


def test_every_package_has_the_licence_of_the_project() -> None:
    licence = (ROOT / "LICENSE").read_text()
    assert licence.startswith("MIT License\n\nCopyright (c) 2026 the oplog authors\n")
    copies = [path.parent / "LICENSE" for path in PACKAGES[1:]]
    copies.append(ROOT / "clients/js/LICENSE")
    assert {path.read_text() for path in copies} == {licence}


def test_the_javascript_package_holds_no_tests() -> None:
    package = json.loads((ROOT / "clients/js/package.json").read_text())
    assert "test" not in package["files"]


@pytest.mark.parametrize("document", VISITED, ids=lambda path: path.name)
def test_a_document_for_visitors_links_to_files_and_invents_no_address(document: Path) -> None:
    text = document.read_text()
    for link in re.findall(r"\]\(([^)\s#]+)", text):
        if not link.startswith("https://"):
            assert (document.parent / link).exists(), link
    assert re.findall(r"[\w.]+@[\w.]+\.\w+", text) == []


def test_the_makefile_explains_each_command_in_a_line() -> None:
    text = (ROOT / "Makefile").read_text()
    phony = re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)[0].split()
    explained = re.findall(r"^([a-z]+):.*## (.+)$", text, re.MULTILINE)
    assert {name for name, _ in explained} == set(phony) - {"tools"}
    assert max(len(words) for _, words in explained) < 80
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"\bmake ([a-z]+)", text + contributing)) - {"with", "created"}
    assert named <= {*phony, "PYTHON"}
