"""The page over HTTP while a run goes on."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from ragen_lab.report.serve import Pages, server
from small_runs import small_run

from ragen_verl.errors import RecipeError


@contextmanager
def served(folder: Path) -> Iterator[str]:
    found = server(Pages(folder, 2000), "127.0.0.1", 0)
    thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{found.server_port}"
    finally:
        found.shutdown()
        found.server_close()
        thread.join()


def read(url: str) -> str:
    with urlopen(url) as answer:
        return answer.read().decode()


def test_a_new_step_gives_a_new_version_and_a_new_page(tmp_path: Path) -> None:
    run = small_run(tmp_path, steps=2)
    with served(tmp_path) as url:
        version, page = read(f"{url}/version"), read(f"{url}/")
        assert version in page and (read(f"{url}/version"), read(f"{url}/")) == (version, page)
        run.log(3, {"train/success": 0.75})
        assert read(f"{url}/version") != version
        assert "<div><dt>Steps</dt><dd>3</dd>" in read(f"{url}/")


@pytest.mark.parametrize("path", ["/config.yaml", "/../config.yaml", "//etc/passwd", "/?x"])
def test_nothing_but_the_page_is_served(tmp_path: Path, path: str) -> None:
    small_run(tmp_path, steps=1)
    with served(tmp_path) as url, pytest.raises(HTTPError, match="404"):
        read(url + path)


def test_a_folder_that_is_gone_is_an_answer(tmp_path: Path) -> None:
    small_run(tmp_path / "run", steps=1)
    with served(tmp_path / "run") as url:
        shutil.rmtree(tmp_path / "run")
        with pytest.raises(HTTPError, match="503"):
            read(url)


def test_a_taken_port_is_one_sentence(tmp_path: Path) -> None:
    first = server(Pages(tmp_path, 1), "127.0.0.1", 0)
    try:
        with pytest.raises(RecipeError, match=r"cannot be served.*name another --port"):
            server(Pages(tmp_path, 1), "127.0.0.1", first.server_port)
    finally:
        first.server_close()
