"""What an evaluation says of time, tokens and money."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from ragen_lab.evaluate.summary import markdown, read_prices, results
from ragen_lab.report.opening import opened
from ragen_lab.report.played import comparisons
from small_runs import small_evaluation

from ragen_verl.errors import RecipeError


def record(seed: int, engine: list[float], environment: list[float], tools: list[tuple[float, str]]) -> dict:
    calls = [{"name": "look", "seconds": took, "error": error} for took, error in tools]
    turns = [{"env_seconds": took, "calls": []} for took in environment]
    turns[0]["calls"] = calls
    metrics = {"turns": 1.0, "valid_action_ratio": 1.0, "effective_action_ratio": 1.0, "response_length": 7.0}
    usage = {"seconds": engine, "prompt_tokens": 3_000, "completion_tokens": 500}
    place = {"split": "val", "env": "Tools", "seed": seed, "excluded": False, "stop_reason": "solved"}
    return {**place, "success": True, "return": 1.0, "metrics": metrics, "turns": turns, "usage": usage}


def episodes(count: int) -> list[dict]:
    random = np.random.default_rng(0)
    return [
        record(seed, [*random.random(3)], [*random.random(2)], [(random.random(), ""), (9.0, "limit"), (0.5, "tool")])
        for seed in range(count)
    ]


def test_steps_have_their_seconds_by_kind() -> None:
    some = episodes(40)
    found = results({"a": some, "b": some}, {"a": (2.0, 10.0)})
    latency = found["policies"]["a"]["val/Tools"]["latency"]
    seconds = {
        "engine": [one for row in some for one in row["usage"]["seconds"]],
        "environment": [turn["env_seconds"] for row in some for turn in row["turns"]],
        "tool": [one["seconds"] for row in some for one in row["turns"][0]["calls"] if one["error"] != "limit"],
    }
    for kind, values in seconds.items():
        assert latency[kind] == {"median": np.percentile(values, 50), "p99": np.percentile(values, 99)}


def test_each_policy_has_its_own_prices() -> None:
    some = episodes(5)
    found = results({"a": some, "b": some, "c": some}, {"a": (2.0, 10.0), "b": (0.0, 1.0)})
    costs = {name: one["val/Tools"].get("cost") for name, one in found["policies"].items()}
    assert costs == {"a": pytest.approx(0.011), "b": pytest.approx(0.0005), "c": None}
    said = dict(zip("abc", found["costs"], strict=True))
    assert "3000 tokens in and 500 out in an episode, which cost 0.011." in said["a"]
    assert "cost" not in said["c"] and "engine" in said["c"] and "tool" in said["c"]
    assert all(one in markdown(found, "title") for one in said.values())


def test_a_table_of_prices_is_read_or_refused(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("a: [2, 10]\n'b c': [0.5, 1]\n")
    assert read_prices(file) == {"a": (2.0, 10.0), "b c": (0.5, 1.0)}
    for text in ("a: 2", "a: [1, 2, 3]", "a: [x, 2]", "- 1", "", "a: [1"):
        file.write_text(text)
        with pytest.raises(RecipeError, match="no table of prices"):
            read_prices(file)
    with pytest.raises(RecipeError, match="no table of prices"):
        read_prices(tmp_path / "none.yaml")


def test_the_page_of_an_evaluation_says_what_it_took(tmp_path: Path) -> None:
    path = small_evaluation(tmp_path / "evaluation")
    found = results({"first": episodes(4)}, {"first": (1.0, 1.0)})
    (path / "results.json").write_text(json.dumps(found))
    assert set(found["costs"]) <= set(comparisons(opened([path])))
