"""The page: one file, one script, and what models and environments wrote only as data."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ragen_lab.report import read_run, render
from ragen_lab.report.page import _compact
from ragen_lab.report.terminal import episode
from ragen_lab.report.trajectories import Wanted, normalise
from rich.console import Console
from small_runs import small_run, trajectory

ATTACK = (
    "</script><script>alert(1)</script><!--<script><img src=x onerror=alert(1)>\"'&amp;\u202e\u2028\ud800\x00{{ 7*7 }}"
)
SAID = ATTACK.replace("\ud800", "")  # no tokenizer gives a lone surrogate; in a file it stands as an escape


class Parsed(HTMLParser):
    """Tags with their attributes, the scripts by their type, and all text outside of scripts and styles."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.text = ""
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)
        elif self.cdata_elem != "style":
            self.text += data + " "

    def data(self, name: str) -> object:
        """A block of data by its id."""
        (found,) = [text for attributes, text in self.scripts if attributes.get("id") == name]
        return json.loads(found)


def parsed(*folders: Path, **options: object) -> Parsed:
    return Parsed(render([read_run(folder) for folder in folders], **options))


def test_the_page_needs_nothing_from_anywhere(tmp_path: Path) -> None:
    page = parsed(small_run(tmp_path).path)
    for tag, attributes in page.tags:
        assert tag not in ("link", "iframe", "img", "object", "embed")
        assert not {"src", "style"} & set(attributes)
        assert not any(name.startswith("on") for name in attributes)
        assert (attributes.get("href") or "#").startswith("#")
    assert "http" not in page.text


def test_the_policy_allows_this_one_script_and_style(tmp_path: Path) -> None:
    raw = render([read_run(small_run(tmp_path).path)]).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', raw)[1].replace("&#39;", "'")
    (script,) = re.findall(r"<script>(.*?)</script>", raw, re.S)
    (style,) = re.findall(r"<style>(.*?)</style>", raw, re.S)
    for text, key in ((script, "script-src"), (style, "style-src")):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{key} 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy and "connect-src" not in policy
    assert "connect-src 'self'" in render([read_run(tmp_path)], live=True).decode().replace("&#39;", "'")


def test_texts_of_a_model_are_data_and_come_back_whole(tmp_path: Path) -> None:
    run = small_run(tmp_path, said=lambda *_: SAID)
    page = parsed(run.path)
    assert sum(attributes.get("type") != "application/json" for attributes, _ in page.scripts) == 1
    index = page.data("index")
    assert "alert(1)" not in page.text
    for number, part in enumerate(index["parts"]):
        block = page.data(f"part-{number}")
        assert len(block) == len(part["items"])
        assert block[0]["turns"][0]["reasoning"] == SAID


def test_texts_of_damaged_files_are_escaped_in_the_markup(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", steps=3)
    finding = {"cause": ATTACK, "step": 2, "advice": ATTACK, "evidence": {"metric": ATTACK, "words": ATTACK}}
    run.verdict.write_text(json.dumps({"status": ATTACK, "findings": [finding], "collapsed": None}))
    (run.path / "versions.json").write_text(json.dumps({ATTACK: ATTACK, "python": ATTACK}))
    run.summary.write_text(json.dumps({"recipe": ATTACK}))
    lines = (run.trajectories("train") / "000001.jsonl").read_text().splitlines()
    record = json.loads(lines[0])
    record |= {"env": ATTACK, "stop_reason": ATTACK, "error": ATTACK}
    (run.trajectories("train") / "000001.jsonl").write_text(json.dumps(record))
    run.error.write_text(ATTACK, errors="replace")
    page = parsed(run.path)
    assert sum(attributes.get("type") != "application/json" for attributes, _ in page.scripts) == 1
    assert not [tag for tag, _ in page.tags if tag == "img"]
    assert "\\u202e" in page.text and "\u202e" not in page.text and "{{ 7*7 }}" in page.text
    assert page.data("part-0")[0]["error"] == ATTACK.replace("\ud800", "?")


def test_a_folders_name_is_escaped_too(tmp_path: Path) -> None:
    page = parsed(small_run(tmp_path / "<img src=x>\u202e", steps=1).path)
    assert not [tag for tag, _ in page.tags if tag == "img"]
    assert page.data("index")["runs"] == ["<img src=x>\u202e"]


def test_without_a_script_result_curves_and_training_are_there(tmp_path: Path) -> None:
    page = parsed(small_run(tmp_path, steps=60, spike=40).path)
    words = " ".join(page.text.split())
    for part in ("Held-out success", "95 % interval", "gradient spike", "warning since step", "Where the time went"):
        assert part in words
    for fact in (
        "a/recipe",
        "Lake-v0 × 3, seeds from 100",
        "60 of 8",
        "rollout 33 %",
        "GPU hours",
        "100 of whole steps",
    ):
        assert fact in words, fact
    assert sum(tag == "path" for tag, _ in page.tags) == 9
    assert ("noscript", {}) in page.tags


def test_several_runs_lie_over_each_other(tmp_path: Path) -> None:
    first, second = small_run(tmp_path / "first"), small_run(tmp_path / "second", steps=6)
    page = parsed(first.path, second.path)
    index = page.data("index")
    assert index["runs"] == ["first", "second"]
    assert {part["run"] for part in index["parts"]} == {0, 1}
    assert [one["runs"] for one in index["variants"]] == [[0, 1]]
    found = page.data("metrics")
    assert [len(one["values"]["train/success"]) for one in found] == [5, 7]
    assert found[0]["values"]["train/success"][1:] == [
        pytest.approx(value, rel=1e-5) for _, value in read_run(first.path).series("train/success")
    ]


@pytest.mark.parametrize("name", ["metrics.jsonl", "trajectories", "verdict.json", "summary.json", "versions.json"])
def test_a_run_with_a_part_missing_has_a_page(tmp_path: Path, name: str) -> None:
    import shutil

    run = small_run(tmp_path, steps=2)
    shutil.rmtree(run.path / name) if name == "trajectories" else (run.path / name).unlink()
    page = parsed(run.path)
    assert page.data("index")["runs"] == [tmp_path.name]


def test_gpus_are_counted_by_name(tmp_path: Path) -> None:
    folder = small_run(tmp_path, steps=1)
    known = json.loads((folder.path / "versions.json").read_text())
    (folder.path / "versions.json").write_text(json.dumps(known | {"gpus": ["H100"] * 8 + ["L4"]}))
    assert "8 × H100, 1 × L4" in parsed(folder.path).text


def test_a_run_that_has_only_begun_has_a_page(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("trainer: {}")
    assert "Nothing was logged yet." in parsed(tmp_path).text


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(st.characters(), max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
_TOKENS = st.fixed_dictionaries(
    {name: _JSON | st.lists(st.integers(0, 9)) for name in ("offsets", "advantages", "mask")}
)
_TURN = st.fixed_dictionaries(
    {"tokens": _JSON | _TOKENS},
    optional={name: _JSON for name in trajectory(1, 1, 1).record()["turns"][0] if name != "turn"},
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.fixed_dictionaries(
        {"turns": _JSON | st.lists(_TURN, max_size=2), "seed": st.integers() | _JSON},
        optional={name: _JSON for name in trajectory(1, 1, 1).record() if name not in ("turns", "seed")},
    )
)
def test_whatever_json_a_record_is_it_is_shown_or_left_out(record: dict) -> None:
    shown = normalise(record)
    if shown is not None:
        json.dumps(_compact(shown, {}), allow_nan=False)
        Wanted(search="x").matches(shown)
        with io.StringIO() as out:
            Console(file=out, width=80).print(episode(shown, "train"))
            assert not set("\x1b\u202e") & set(out.getvalue())


def test_a_huge_turn_is_cut_and_the_page_stays_small(tmp_path: Path) -> None:
    run = small_run(tmp_path, steps=1, said=lambda *_: "x" * 1_000_000, groups=1, members=1, states=1)
    assert len(render([read_run(run.path)])) < 500_000


def test_limits_are_said(tmp_path: Path) -> None:
    run = small_run(tmp_path, steps=30, groups=8, turns=1)
    assert "256 of 1,056 trajectories" not in parsed(run.path, limit=5000).text
    words = " ".join(parsed(run.path, limit=256).text.split())
    assert re.search(r"\d+ of 1,056 trajectories are in this page: whole groups", words)
