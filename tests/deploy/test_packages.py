"""The packages and the site, built from a copy of the checkout."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from scripts.version import version
from tests.deploy.test_install_commands import tracked
from tests.kits.paths import ROOT

MINUTES = 10


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for name in ("build", "zensical"):
        pytest.importorskip(name, reason=f"{name} is missing: install the group `release`")
    folder = tmp_path_factory.mktemp("checkout")
    for path in tracked():
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    return folder


def run(*command: str | Path, cwd: Path, **environ: str) -> "subprocess.CompletedProcess[str]":
    inherited = {name: os.environ[name] for name in os.environ if name != "PYTHONPATH"}
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
def test_the_packages_are_built_checked_installed_and_tried(checkout: Path) -> None:
    done = run(sys.executable, "-m", "scripts.dist", cwd=checkout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(path.name for path in (checkout / "dist").iterdir()) == [
        f"oplog-{version()}-py3-none-any.whl",
        f"oplog-{version()}.cdx.json",
        f"oplog-{version()}.tar.gz",
        f"oplog-client-{version()}.tgz",
        f"oplogc-{version()}-py3-none-any.whl",
        f"oplogc-{version()}.tar.gz",
    ]


@pytest.mark.network
@pytest.mark.slow
def test_one_install_command_gives_every_command(checkout: Path, tmp_path: Path) -> None:
    venv = ("-m", "venv", "--without-pip", tmp_path / "venv")
    assert run(sys.executable, *venv, cwd=checkout).returncode == 0
    bin_ = tmp_path / "venv/bin"
    # The libraries are there: to install Spark takes 20 s. The test above begins with nothing.
    (site,) = (tmp_path / "venv/lib").glob("*/site-packages")
    (site / "lent.pth").write_text(sysconfig.get_path("purelib"))
    install = ("install", "-q", "-c", "constraints.txt", ".[relay,sync]", "./clients/python")
    pip = ("-m", "pip", "--python", bin_ / "python", *install)
    done = run(sys.executable, *pip, cwd=checkout)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in site.glob("oplog*")} >= {"oplogd", "oplog_sync", "oplogc"}
    for name in ("oplogd", "oplog-relay", "oplog-sync", "oplog-tail", "oplogctl"):
        assert run(bin_ / name, "--version", cwd=tmp_path).stdout == f"{name} {version()}\n"


def test_the_site_is_built(checkout: Path) -> None:
    done = run(sys.executable, "-m", "scripts.docs", cwd=checkout)
    assert done.returncode == 0, done.stdout + done.stderr
    site = checkout / "build/site"
    assert {"index.html", "start/quickstart.html"} <= {
        path.relative_to(site).as_posix() for path in site.rglob("*.html")
    }
    # Every code block is one, also with words for the tests behind its language.
    quickstart = (checkout / "docs/start/quickstart.md").read_text()
    html = (site / "start/quickstart.html").read_text()
    assert html.count("<pre") == quickstart.count("\n```") / 2
    assert "producer.py" in html
    # A page outside docs/ that a page links to is part of the site.
    assert (site / "project/CHANGELOG.html").is_file()
    assert 'href="../project/CHANGELOG.html"' in (site / "operate/operations.html").read_text()
    # Snippets begin and end as in the checkout, and lists with snippets are not cut.
    assert [page for page in site.rglob("*.html") if "```" in page.read_text()] == []
    assert '"filename">consumer.py<' in (site / "start/quickstart.html").read_text()
    assert "<p>Build the packages:</p>" in (site / "internals/releasing.html").read_text()


def test_a_broken_link_fails_the_build_of_the_site(checkout: Path, tmp_path: Path) -> None:
    links = ("nowhere.md", "operations.md#nowhere", "../nowhere.md")
    copy = tmp_path / "checkout"
    shutil.copytree(checkout / "scripts", copy / "scripts")
    (copy / "docs").mkdir()
    (copy / "docs/operations.md").write_text("# Operations\n")
    (copy / "docs/README.md").write_text(
        "# Documents\n" + "".join(f"\n[broken]({link})\n" for link in links)
    )
    done = run(sys.executable, "-m", "scripts.docs", cwd=copy, NO_COLOR="1")
    assert done.returncode == 1
    lines = (copy / "docs/README.md").read_text().splitlines()
    told = {lines[int(number) - 1] for number in re.findall(r"README\.md:(\d+)", done.stderr)}
    assert told == {f"[broken]({link})" for link in links}


def test_a_page_that_needs_a_network_fails_the_build_of_the_site(
    checkout: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "checkout"
    shutil.copytree(checkout / "scripts", copy / "scripts")
    (copy / "docs").mkdir()
    (copy / "docs/README.md").write_text("![a picture](https://example.com/picture.png)\n")
    done = run(sys.executable, "-m", "scripts.docs", cwd=copy)
    assert done.returncode == 1
    assert "needs a network" in done.stderr
