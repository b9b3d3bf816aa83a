"""The docs site in a real headless Chromium, at the widths of a phone and a laptop.

`make test-pages` builds the site and runs these.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
api = pytest.importorskip("playwright.sync_api", reason="make test-pages installs Playwright")
SITE = Path(__file__).parents[2] / "site"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
#: What reaches over the right edge and is not in a box that scrolls by itself, and pictures that did not load.
WRONG = """() => [
  ...[...document.querySelectorAll('.md-content *')].filter((one) => {
    if (one.getBoundingClientRect().right <= document.documentElement.clientWidth + 1) return false
    for (let box = one.parentElement; box; box = box.parentElement)
      if (['auto', 'scroll'].includes(getComputedStyle(box).overflowX)) return false
    return true
  }).map((one) => one.outerHTML.slice(0, 200)),
  ...[...document.images].filter((one) => !one.naturalWidth).map((one) => one.src)]"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    if not (SITE / "index.html").is_file():
        pytest.skip("make test-pages builds the site")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SITE))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module", params=[390, 1280])
def tab(request: pytest.FixtureRequest) -> Iterator[object]:
    with api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser.new_page(viewport={"width": request.param, "height": 900})
        browser.close()


def test_pages_fit_the_window_and_ask_no_other_host(tab, site) -> None:
    pages = sorted(one.parent.relative_to(SITE).as_posix() for one in SITE.rglob("index.html"))
    assert len(pages) > 40
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    for page in pages:
        tab.goto(site + page)
        assert tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0, page
        assert tab.evaluate(WRONG) == [], page
    assert [one for one in asked if not one.startswith((site, "data:"))] == []


def test_a_part_of_a_key_is_found(tab, site) -> None:
    tab.goto(f"{site}?q=format_penalty")
    tab.locator(".md-search-result__link[href*='first_hour']").first.wait_for(state="attached")


def test_names_in_tables_break_only_between_their_parts(tab, site) -> None:
    broken = """(cells) => cells.flatMap((cell) => [...cell.childNodes]).filter((part) => {
      const range = document.createRange()
      range.selectNode(part)
      return /^\\w+$/.test(part.data) && range.getClientRects().length > 1
    }).map((part) => part.data)"""
    for page in ("measured/", "environments/", "first_hour/"):
        tab.goto(site + page)
        assert tab.locator("td code").evaluate_all(broken) == [], page
