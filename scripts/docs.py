"""Build the documentation as a site in `build/site`, to be served without a network.

The site has the pages of `docs/`, and every file of the project that they link to. A link that
leads nowhere is an error. Serve it with: python3 -m http.server --directory build/site
"""

import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
PAGES = BUILD / "pages"
SITE = BUILD / "site"
# Files outside docs/ are put below this folder of the site.
OUTSIDE = "project"
_LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
# A code block with words for the tests behind its language, such as a file's name.
_FENCE = re.compile(r"^```(\w+) (.+)$", re.MULTILINE)
_EXTERNAL = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"?https?://[^\s\">]+")
CONFIGURATION = """
[project]
site_name = "oplog"
docs_dir = "pages"
site_dir = "site"
use_directory_urls = false
[project.theme]
font = false
features = ["navigation.indexes", "toc.follow"]
[project.validation]
invalid_links = true
invalid_link_anchors = true
"""


def place(path: Path) -> Path:
    """Return the place of a file of the project below `build/pages`."""
    docs = ROOT / "docs"
    inside = path.is_relative_to(docs)
    return PAGES / path.relative_to(docs) if inside else PAGES / OUTSIDE / path.relative_to(ROOT)


def collect() -> None:
    """Copy the pages and everything they link to, and rewrite links that leave docs/."""
    shutil.rmtree(BUILD / "pages", ignore_errors=True)
    waiting = [path for path in (ROOT / "docs").rglob("*") if path.is_file()]
    known = set(waiting)
    while waiting:
        path = waiting.pop()
        place(path).parent.mkdir(parents=True, exist_ok=True)
        if path.suffix != ".md":
            shutil.copy(path, place(path))
            continue
        text = path.read_text(encoding="utf-8")
        for match in _LINK.finditer(text):
            target = (path.parent / match[2]).resolve()
            if target.is_file() and target.is_relative_to(ROOT) and target not in known:
                known.add(target)
                waiting.append(target)
        text = _FENCE.sub(fence, _LINK.sub(partial(rewritten, path), text))
        place(path).write_text(text, encoding="utf-8")


def rewritten(page: Path, match: re.Match[str]) -> str:
    target = (page.parent / match[2]).resolve()
    if "://" in match[2] or not target.is_file() or not target.is_relative_to(ROOT):
        return match[0]  # the build reports it if it leads nowhere
    link = os.path.relpath(place(target), place(page).parent)
    return f"{match[1]}{Path(link).as_posix()}{match[3]}"


def fence(match: re.Match[str]) -> str:
    """Return the first line of a code block for the site: a file name is a title."""
    title = f' title="{match[2]}"' if "." in match[2] else ""
    return f"```{match[1]}{title}"


def build() -> None:
    (BUILD / "zensical.toml").write_text(CONFIGURATION)
    program = str(Path(sys.executable).with_name("zensical"))
    command = [program, "build", "--clean", "--strict", "--config-file", "zensical.toml"]
    done = subprocess.run(command, cwd=BUILD, capture_output=True, text=True, check=False)
    if done.returncode:
        # After its findings the program prints a traceback, which says nothing more.
        sys.exit(f"{done.stdout}{done.stderr}".partition("Traceback")[0])


def check() -> None:
    """End with an error if a page would load something from another host."""
    for page in SITE.rglob("*.html"):
        if found := _EXTERNAL.search(page.read_text(encoding="utf-8")):
            sys.exit(f"{page} needs a network: {found[0]}")


def main() -> None:
    collect()
    build()
    check()
    pages = len(list(SITE.rglob("*.html")))
    print(f"{pages} pages in {SITE.relative_to(ROOT)}; serve them with:")
    print(f"  python3 -m http.server --directory {SITE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
