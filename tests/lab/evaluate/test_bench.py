"""`ragen-verl bench`: every task once, the official score with its interval, the data's version, contamination."""

from __future__ import annotations

import json
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ragen_lab.evaluate import bench as benches
from ragen_lab.evaluate.bench import Bench, Part, contamination, find, score
from ragen_lab.statistics import pass_hat_k
from typer.testing import CliRunner

from ragen_verl.cli import app
from ragen_verl.env import registry
from ragen_verl.env.tools import ToolEnv, called, tool
from ragen_verl.errors import RecipeError


class Sums(ToolEnv):
    """Task i: is i even? Played by the oracle, every third task is lost."""

    max_actions = 3
    instruction = "Say whether the number is even."
    version = "sums 1.0"

    def __init__(self, first: int = 0) -> None:
        self.tasks, self.first = 9, first

    def task_key(self, task: int) -> str:
        return f"sum {self.first + task}"

    def task_gold(self, task: int) -> str:
        return str(self.first + task)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return f"{self.first + self.task}", {}

    @tool
    def even(self, yes: bool):
        """Answer.

        Args:
            yes: whether it is even.
        """
        number = self.first + self.task
        solved = yes == (number % 2 == 0) and number % 3 > 0
        return self.end("", 0.5 * solved, success=solved)

    def oracle(self) -> list[str]:
        return [called("even", yes=(self.first + self.task) % 2 == 0)]


@pytest.fixture(autouse=True)
def _registered(monkeypatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})
    registry.register("Sums-v0", Sums)


SUMS = Bench((Part("low", "Sums-v0", {}), Part("high", "Sums-v0", {"first": 100})), "success", "2026")


def test_every_task_is_played_once_and_scored(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(benches.BENCHMARKS, "sums", SUMS)
    command = ["bench", "sums", "--policy", "oracle", "--samples", "2", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    saved = [json.loads(line) for line in (tmp_path / "oracle" / "episodes.jsonl").read_text().splitlines()]
    played = sorted((one["env"], one["seed"], one["rollout_index"]) for one in saved)
    assert played == sorted((part, task, k) for part in ("low", "high") for task in range(9) for k in range(2))
    found = json.loads((tmp_path / "results.json").read_text())["scores"]["oracle"]
    assert found["score"]["value"] == pytest.approx(2 / 3) and found["score"]["states"] == 18
    assert found["pass^k"] == {"1": pytest.approx(2 / 3), "2": pytest.approx(2 / 3)}
    assert "official score 0.667" in result.output and "Data: sums 1.0." in result.output
    assert "public since 2026" in result.output
    assert "no official score" in CliRunner().invoke(app, [*command[:-1], str(tmp_path / "few"), "--tasks", "3"]).output


def test_a_failed_episode_counts_as_zero() -> None:
    def one(env: str, seed: int, success: bool, excluded: bool = False) -> dict:
        return {"env": env, "seed": seed, "success": success, "return": 0.5 * success, "excluded": excluded}

    records = [one("low", 0, True), one("low", 1, True, excluded=True), one("high", 0, True), one("high", 1, True)]
    found = score(SUMS, records, 1)
    assert found["parts"] == {"low": 0.5, "high": 1.0} and found["score"]["value"] == 0.75 and found["failed"] == 1
    assert score(Bench(SUMS.parts, "return", ""), records, 1)["score"]["value"] == 0.375


def test_a_run_that_was_trained_on_the_tasks_is_named(tmp_path) -> None:
    envs = SUMS.environments()
    split = {"seed": 0, "envs": [{"id": "Sums-v0", "groups": 1, "kwargs": {"first": 5}}]}
    (tmp_path / "config.yaml").write_text(
        json.dumps({"ragen": {"train": split, "val": {**split, "seed": 9}, "run": {"dir": "x"}}})
    )
    said = contamination(SUMS, envs, f"run:{tmp_path}@last")
    assert said.startswith("the run was trained on 4 of these tasks and on the solutions of 4;")
    assert "not known" in contamination(SUMS, envs, "api:gpt")


def test_unknown_names_and_endless_environments_are_refused() -> None:
    with pytest.raises(RecipeError, match="bfcl"):
        find("bfcll")
    with pytest.raises(RecipeError, match="no benchmark"):
        Bench((Part("x", "FrozenLake-v0", {}),), "success", "").environments()


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=5), min_size=1, max_size=4), st.integers(1, 3))
def test_all_of_k_drawn_episodes_succeed(outcomes, k) -> None:
    from itertools import combinations

    drawn = [[all(one) for one in combinations(state, k)] for state in outcomes]
    assert all(len(one) == comb(len(state), k) for one, state in zip(drawn, outcomes, strict=True))
    assert pass_hat_k(outcomes, k) == pytest.approx(sum(sum(one) / len(one) for one in drawn) / len(drawn))
    assert pass_hat_k([*outcomes, [True]], 2) is None
