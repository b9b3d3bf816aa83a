"""What mkdocs cannot say in mkdocs.yml: pages that live outside docs/, links that lead there, and the API page.

README.md is the site's first page; CHANGELOG.md and recipes/README.md are pages too; `api.md` is made of the names that
`ragen_verl/__init__.pyi` exports. Links to other files of the repository lead to the repository; pictures are copied,
and a click opens them. The theme's own request, for the repository's stars, is not made.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
#: A file of the repository -> the page that it becomes; all else in docs/ keeps its name.
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "recipes/README.md": "recipes.md"}
LINK = re.compile(r"(!?)\[((?:[^][]|\[[^]]*\])*)\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")
CELL = re.compile(r"(?<=<code>)[^<]+(?=</code>(?:(?!<t[dr]\b|<table).)*</t[dh]>)", re.S)


def api() -> str:
    """The page of the public names, each with its docstring."""
    names = re.findall(r"^from (\S+) import (\w+) as \w+$", (ROOT / "ragen_verl/__init__.pyi").read_text("utf-8"), re.M)
    heading = (
        "# API\n\nThe names that `ragen_verl` exports ([how long they stay](public_api.md)), from their docstrings.\n"
    )
    return heading + "".join(f"\n::: {module}.{name}\n" for module, name in names)


def page_of(path: str) -> str | None:
    """The page of the site that shows the repository's file `path`."""
    if path.startswith("docs/") and path.endswith(".md"):
        return path.removeprefix("docs/")
    return PAGES.get(path)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside docs/ and the pictures that they show."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text("utf-8")))
    files.append(File.generated(config, "api.md", content=api()))
    for picture in ROOT.glob("benchmarks/results/**/*.png"):
        name = picture.relative_to(ROOT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite each relative link: to a page of the site, a copied picture, or the file in the repository."""
    here = {page_: source for source, page_ in PAGES.items()}.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def rewrite(found: re.Match[str]) -> str:
        mark, text, target, anchor = found.groups()
        path = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
        if mark:
            picture = path.removeprefix("docs/")
            return f"[![{text}]({picture})]({picture})"
        if inside := page_of(path):
            return f"[{text}]({inside}{anchor or ''})"
        return f"[{text}]({config.repo_url}/blob/main/{path}{anchor or ''})"

    return LINK.sub(rewrite, markdown)


def on_page_content(html: str, **_: object) -> str:
    """Let names and keys in tables break at their dots and underscores, and nowhere else (`site.css`)."""
    return CELL.sub(lambda found: re.sub(r"(?<=\w)[._/=](?=\w)", r"\g<0><wbr>", found[0]), html)


def on_post_page(output: str, **_: object) -> str:
    """Take away what asks api.github.com for the repository's stars when a page is opened."""
    return output.replace(' data-md-component="source"', "")
