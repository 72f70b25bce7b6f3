"""The packages and the site, built from a copy of the checkout."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

from scripts.version import version
from tests.deploy.test_install_commands import tracked
from tests.kits.paths import ROOT

MINUTES = 10


@pytest.fixture(scope="module")
def release() -> None:
    for name in ("build", "zensical"):
        pytest.importorskip(name, reason=f"{name} is missing: install the group `release`")


@pytest.fixture(scope="module")
def checkout(release: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkout")
    for path in tracked():
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    return folder


@pytest.fixture(scope="module")
def released(checkout: Path) -> "subprocess.CompletedProcess[str]":
    """Build the packages in `dist/`, and the rest that `make dist` does."""
    return run(sys.executable, "-m", "scripts.dist", cwd=checkout)


def run(*command: str | Path, cwd: Path, **environ: str) -> "subprocess.CompletedProcess[str]":
    # Programs start sooner if Python keeps what it compiled.
    without = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    inherited = {name: os.environ[name] for name in os.environ if name not in without}
    return subprocess.run(
        command,
        cwd=cwd,
        # Compiling what pip installs takes longer than the installation.
        env={**inherited, "PIP_NO_COMPILE": "1", **environ},
        capture_output=True,
        text=True,
        timeout=60 * MINUTES,
        check=False,
    )


@pytest.mark.network
@pytest.mark.node
@pytest.mark.slow
def test_the_packages_are_built_checked_installed_and_tried(
    checkout: Path, released: "subprocess.CompletedProcess[str]"
) -> None:
    assert released.returncode == 0, released.stdout + released.stderr
    assert sorted(path.name for path in (checkout / "dist").iterdir()) == [
        f"oplog-{version()}-py3-none-any.whl",
        f"oplog-{version()}.cdx.json",
        f"oplog-{version()}.tar.gz",
        f"oplog-client-{version()}.tgz",
        f"oplogc-{version()}-py3-none-any.whl",
        f"oplogc-{version()}.tar.gz",
    ]


def test_pip_can_build_the_packages_in_an_environment_with_setuptools_only() -> None:
    # All other tests build with the setuptools that is installed.
    for folder in (ROOT, ROOT / "clients/python"):
        project = tomllib.loads((folder / "pyproject.toml").read_text())
        assert project["build-system"] == {
            "requires": ["setuptools>=77"],
            "build-backend": "setuptools.build_meta",
        }


@pytest.mark.network
@pytest.mark.node
@pytest.mark.slow
@pytest.mark.usefixtures("released")
def test_one_install_command_gives_every_command(checkout: Path, tmp_path: Path) -> None:
    venv = ("-m", "venv", "--without-pip", tmp_path / "venv")
    assert run(sys.executable, *venv, cwd=checkout).returncode == 0
    bin_ = tmp_path / "venv/bin"
    # The libraries are there: to install Spark takes 20 s. The test above begins with nothing.
    (site,) = (tmp_path / "venv/lib").glob("*/site-packages")
    (site / "lent.pth").write_text(sysconfig.get_path("purelib"))
    # test_checkout.py installs the folders. Here are the packages that are built from them.
    (agent,) = checkout.glob("dist/oplog-*.whl")
    (client,) = checkout.glob("dist/oplogc-*.whl")
    install = ("install", "-q", "-c", "constraints.txt", f"{agent}[relay,sync]", client)
    pip = ("-m", "pip", "--python", bin_ / "python", *install)
    done = run(sys.executable, *pip, cwd=checkout)
    assert done.returncode == 0, done.stderr
    installed = {path.name for path in site.iterdir()}
    assert installed >= {"oplogd", "oplog_sync", "oplogc", "pyspark_oplog"}
    for name in ("oplogd", "oplog-relay", "oplog-sync", "oplog-tail", "oplogctl"):
        assert run(bin_ / name, "--version", cwd=tmp_path).stdout == f"{name} {version()}\n"


def small(folder: Path, readme: str) -> "subprocess.CompletedProcess[str]":
    """Build a site of three pages."""
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    (folder / "docs").mkdir()
    (folder / "docs/operations.md").write_text("# Operations\n")
    (folder / "docs/README.md").write_text("## Operate\n\n- [Operations](operations.md)\n")
    (folder / "README.md").write_text(readme)
    return run(sys.executable, "-m", "scripts.docs", cwd=folder, NO_COLOR="1")


@pytest.mark.usefixtures("release")
def test_a_broken_link_fails_the_build_of_the_site(tmp_path: Path) -> None:
    links = ("nowhere.md", "docs/operations.md#nowhere", "../nowhere.md")
    done = small(tmp_path, "# Documents\n" + "".join(f"\n[broken]({link})\n" for link in links))
    assert done.returncode == 1
    # Above the first line of the page the site has four of its own.
    lines = ["", "", "", "", *(tmp_path / "README.md").read_text().splitlines()]
    told = {lines[int(number) - 1] for number in re.findall(r"README\.md:(\d+)", done.stderr)}
    assert told == {f"[broken]({link})" for link in links}


@pytest.mark.usefixtures("release")
def test_a_page_that_needs_a_network_fails_the_build_of_the_site(tmp_path: Path) -> None:
    done = small(tmp_path, "![a picture](https://example.com/picture.png)\n")
    assert done.returncode == 1
    assert "needs a network" in done.stderr
