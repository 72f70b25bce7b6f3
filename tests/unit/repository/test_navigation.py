"""The map of the documents, `docs/README.md`, from which the site takes its navigation."""

from pathlib import Path

import pytest

import scripts.docs
from scripts.docs import Entry, navigation, paths
from tests.kits.documents.pages import DOCS

GROUPS = ["Start", "How-to", "Concepts", "Reference", "Operate", "Internals"]


def test_the_map_has_the_groups_in_their_order() -> None:
    titles = [group.title for group in navigation()]
    assert titles == [title for title in GROUPS if title in titles]
    assert {*GROUPS} - {*titles} <= {"Concepts"}
    assert all(group.entries for group in navigation())


def test_the_map_names_each_page_once() -> None:
    named = [path for group in navigation() for path in paths(group)]
    assert len(named) == len({*named})
    assert {path for path in named if path.is_relative_to(DOCS)} == {*DOCS.rglob("*.md")} - {
        DOCS / "README.md"
    }


def test_each_page_lies_in_the_folder_of_its_group() -> None:
    for group in navigation():
        assert group.title
        folder = DOCS / group.title.replace("-", "").lower()
        inside = [path for path in paths(group) if path.is_relative_to(DOCS)]
        assert [path for path in inside if not path.is_relative_to(folder)] == []


def test_lists_may_be_nested_and_an_index_stands_for_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "records").mkdir()
    for name in ("README.md", "2.md", "1.md"):
        (tmp_path / "records" / name).touch()
    (tmp_path / "README.md").write_text(
        "# Map\n\n## One\n\n- [A](a.md): first\n  - [B](b.md)\n- [C](c.md)\n\n"
        "## Two\n\n- [Records](records/README.md)\n"
    )
    monkeypatch.setattr(scripts.docs, "DOCS", tmp_path)
    monkeypatch.setattr(scripts.docs, "MAP", tmp_path / "README.md")
    records = [Entry(None, tmp_path / "records" / name, []) for name in ("1.md", "2.md")]
    a = Entry("A", tmp_path / "a.md", [Entry("B", tmp_path / "b.md", [])])
    assert navigation() == [
        Entry("One", None, [a, Entry("C", tmp_path / "c.md", [])]),
        Entry("Two", None, [Entry("Records", tmp_path / "records/README.md", records)]),
    ]


def test_a_page_that_the_map_lacks_ends_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "README.md").write_text("## One\n\n- [A](a.md)\n")
    for name in ("a.md", "new.md"):
        (tmp_path / name).touch()
    monkeypatch.setattr(scripts.docs, "ROOT", tmp_path)
    monkeypatch.setattr(scripts.docs, "DOCS", tmp_path)
    monkeypatch.setattr(scripts.docs, "MAP", tmp_path / "README.md")
    with pytest.raises(SystemExit, match=r"README\.md does not link to: new\.md"):
        scripts.docs.build()
