"""Links of the pages lead to files and headings that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from paths import ROOT

PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("recipes/**/*.md"), *ROOT.glob("examples/*/*.md")]
)


def anchors(page: Path) -> set[str]:
    """What a link can name of a page: its headings as GitHub writes them, outside of blocks of code."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead(page: Path) -> list[str]:
    """The links of a page that lead to no file or no heading; addresses of the network are not looked at."""
    found = []
    for link in re.findall(r"\]\(([^()\s]+)\)", page.read_text("utf-8")):
        if re.match(r"\w+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    assert dead(page) == []


def test_a_dead_link_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One `thing`, two\n[a](#one-thing-two) [b](#three) [c](other.md) [d](https://example.org)")
    assert dead(page) == ["#three", "other.md"]


def test_every_page_has_a_place_on_the_site() -> None:
    """`make site` says this too, with a strict build that takes longer."""
    named = set(re.findall(r"^\s+- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE))
    pages = {page.name for page in ROOT.glob("docs/*.md")} | {"index.md", "changelog.md", "recipes.md", "api.md"}
    assert pages == named
