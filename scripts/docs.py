"""Build the documentation as a site in `build/site`, to be served without a network.

The README is the home page, and `docs/README.md` is the navigation. The site has the pages of
`docs/`, and every file of the project that they link to, at the paths of the checkout. A page that
the navigation lacks is an error, and so is a link that leads nowhere. Serve the site with:
python3 -m http.server --directory build/site
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
MAP = DOCS / "README.md"
BUILD = ROOT / "build"
PAGES = BUILD / "pages"
SITE = BUILD / "site"
_LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)")
# A line of the map: a heading names a group, a list has its pages.
_MAP = re.compile(r"^(?:## (?P<group>.+)|(?P<indent> *)- \[(?P<title>.+?)\]\((?P<path>[^)]+)\).*)$")
# A code block with words for the tests behind its language, such as a file's name.
_FENCE = re.compile(r"^( *)```(\w+) (.+)$", re.MULTILINE)
_PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\.png\)")
# A table's row, and code in it: the generator takes the backslash in `a\|b` for a part of the code.
_ROW = re.compile(r"^\|.*$", re.MULTILINE)
_CODE = re.compile(r"`[^`]+`")
_EXTERNAL = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"?https?://[^\s\">]+")
CONFIGURATION = """
[project]
site_name = "oplog"
docs_dir = "pages"
site_dir = "site"
use_directory_urls = false
nav = {nav}
extra_css = ["site.css"]
[project.theme]
font = false
features = ["content.code.copy", "navigation.indexes", "navigation.tabs", "search.highlight", "toc.follow"]
[[project.theme.palette]]
media = "(prefers-color-scheme)"
toggle.icon = "lucide/sun-moon"
toggle.name = "Use light colours"
[[project.theme.palette]]
media = "(prefers-color-scheme: light)"
scheme = "default"
toggle.icon = "lucide/sun"
toggle.name = "Use dark colours"
[[project.theme.palette]]
media = "(prefers-color-scheme: dark)"
scheme = "slate"
toggle.icon = "lucide/moon"
toggle.name = "Use the colours of the system"
[project.validation]
invalid_links = true
invalid_link_anchors = true
"""  # noqa: E501

STYLE = """
.md-grid { max-width: 80rem; }
.md-typeset table:not([class]) code { word-break: normal; }
"""
# The home page has no navigation beside it, so its text may be wider.
HOME = "---\nhide: [navigation]\n---\n\n"


class Entry(NamedTuple):
    """An entry of the navigation: a page, or a group of entries. ``title`` None: the page's own."""

    title: str | None
    path: Path | None
    entries: "list[Entry]"


def navigation() -> list[Entry]:
    """Return the groups of the map. Lists may be nested: the first page of a section is its index.

    A README stands for the pages of its folder, too, unless the map names one of them.
    """
    groups: list[Entry] = []
    above: list[tuple[int, Entry]] = []
    for line in MAP.read_text(encoding="utf-8").splitlines():
        if not (match := _MAP.match(line)):
            continue
        if match["group"]:
            groups.append(Entry(match["group"], None, []))
            above = [(-1, groups[-1])]
            continue
        indent = len(match["indent"])
        while above[-1][0] >= indent:
            above.pop()
        entry = Entry(match["title"], (DOCS / match["path"]).resolve(), [])
        above[-1][1].entries.append(entry)
        above.append((indent, entry))
    named = {path for group in groups for path in paths(group)}
    for entry in [each for group in groups for each in group.entries]:
        if entry.path and entry.path.name == "README.md" and entry.path.is_relative_to(DOCS):
            beside = {*entry.path.parent.rglob("*.md")} - {entry.path}
            if not beside & named:
                entry.entries.extend(Entry(None, path, []) for path in sorted(beside))
    return groups


def paths(entry: Entry) -> list[Path]:
    """Return the pages of an entry and of those in it."""
    below = [path for each in entry.entries for path in paths(each)]
    return [entry.path, *below] if entry.path else below


def written(entry: Entry) -> str:
    """Return the entry as TOML."""
    page = json.dumps(entry.path.relative_to(ROOT).as_posix()) if entry.path else ""
    if not entry.entries:
        return f"{{ {json.dumps(entry.title)} = {page} }}" if entry.title else page
    pages = [page] if page else []
    below = ", ".join([*pages, *map(written, entry.entries)])
    return f"{{ {json.dumps(entry.title)} = [{below}] }}"


def collect() -> None:
    """Write the pages for the site, and copy everything they link to."""
    shutil.rmtree(PAGES, ignore_errors=True)
    PAGES.mkdir(parents=True)
    (PAGES / "site.css").write_text(STYLE)
    waiting = [ROOT / "README.md", *(path for path in DOCS.rglob("*") if path.is_file())]
    known = set(waiting)
    while waiting:
        path = waiting.pop()
        place = PAGES / path.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix != ".md":
            shutil.copy(path, place)
            continue
        text = path.read_text(encoding="utf-8")
        for match in _LINK.finditer(text):
            target = (path.parent / match[1]).resolve()
            if target.is_file() and target.is_relative_to(ROOT) and target not in known:
                known.add(target)
                waiting.append(target)
        front = HOME if path == ROOT / "README.md" else ""
        place.write_text(front + page(path, text), encoding="utf-8")


def page(path: Path, text: str) -> str:
    """Return the text of a page for the site."""

    def picture(match: re.Match[str]) -> str:
        """Show the picture of each colour scheme, if there are two."""
        alt, name = match.groups()
        if not (path.parent / f"{name}-dark.png").is_file():
            return match[0]
        return f"![{alt}]({name}.png#only-light)![{alt}]({name}-dark.png#only-dark)"

    def row(match: re.Match[str]) -> str:
        return _CODE.sub(lambda code: code[0].replace("\\|", "|"), match[0])

    return _ROW.sub(row, _PICTURE.sub(picture, _FENCE.sub(fence, text)))


def fence(match: re.Match[str]) -> str:
    """Return the first line of a code block for the site: a file name is a title."""
    title = f' title="{match[3]}"' if "." in match[3] else ""
    return f"{match[1]}```{match[2]}{title}"


def build() -> None:
    groups = navigation()
    named = {MAP, *(path for group in groups for path in paths(group))}
    if missing := sorted({*DOCS.rglob("*.md")} - named):
        names = ", ".join(path.relative_to(DOCS).as_posix() for path in missing)
        sys.exit(f"{MAP.relative_to(ROOT)} does not link to: {names}")
    nav = ", ".join(['{ "Home" = "README.md" }', *map(written, groups)])
    (BUILD / "zensical.toml").write_text(CONFIGURATION.replace("{nav}", f"[{nav}]"))
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
