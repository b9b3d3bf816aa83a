"""docs/your_own_policy.md, followed word for word."""

from __future__ import annotations

import json
from pathlib import Path

from doc_pages import Page

PAGE = Page("your_own_policy.md")
[EVAL] = PAGE.commands


def test_the_policy_of_the_page_is_evaluated(tmp_path: Path) -> None:
    assert list(PAGE.files) == ["my_policy/stubborn.py"]
    follow = PAGE.follow(tmp_path)
    done = follow(EVAL)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (tmp_path / "my_policy/results/stubborn-Down/episodes.jsonl").read_text().splitlines()
    played = [action for line in lines for turn in json.loads(line)["turns"] for action in turn["executed"]]
    assert len(lines) == 8 and set(played) == {"Down"}
    wrong = follow(EVAL.replace("stubborn:Down", "stuborn:Down"))
    assert wrong.returncode != 0 and "did you mean stubborn?" in " ".join((wrong.stdout + wrong.stderr).split())
