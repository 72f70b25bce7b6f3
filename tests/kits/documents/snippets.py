"""The snippets of the documents.

The word after the language tells how to run a snippet:

- ``sh stays`` runs until it is stopped.
- ``python consumer.py`` is saved under that name.
- ``text`` is the output of the snippet before it.
- ``text again`` is the output of the snippet before it if that runs once more.
- ``text stays`` is further output of the last command that stays.
"""

import re
import textwrap
from pathlib import Path
from typing import NamedTuple

from tests.kits.paths import ROOT

# A fence may be indented, in a list.
_FENCE = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)


class Snippet(NamedTuple):
    """``word`` follows the language. ``prose`` is the text since the snippet before."""

    line: int
    language: str
    word: str
    code: str
    prose: str

    @property
    def first(self) -> str:
        return next((line.strip() for line in self.code.splitlines() if line.strip()), "")


def documents() -> list[Path]:
    """Return all documents that have snippets."""
    found = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("clients/*/README.md")]
    return sorted(path for path in found if _FENCE.search(path.read_text(encoding="utf-8")))


def name_of(document: Path) -> str:
    return document.relative_to(ROOT).as_posix()


def snippets(document: Path) -> list[Snippet]:
    text = document.read_text(encoding="utf-8")
    found = []
    end = 0
    for match in _FENCE.finditer(text):
        language, _, word = match[2].strip().partition(" ")
        line = text.count("\n", 0, match.start()) + 1
        found.append(
            Snippet(line, language, word, textwrap.dedent(match[3]), text[end : match.start()])
        )
        end = match.end()
    return found


def snippet_of(document: Path, word: str) -> str:
    """Return the code of the only snippet with this word after its language."""
    (found,) = [each.code for each in snippets(document) if each.word == word]
    return found
