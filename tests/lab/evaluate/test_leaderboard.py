"""The board: played for real by chance and by the oracle, ranked by paired differences."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from endpoint import endpoint
from ragen_lab.evaluate.leaderboard import GAMES, SEED, Board, ranked
from ragen_lab.statistics import mean, stratified
from scipy import stats
from typer.testing import CliRunner

from ragen_verl.cli import app
from ragen_verl.env import make
from ragen_verl.errors import RecipeError


def run(*args):
    return CliRunner().invoke(app, ["leaderboard", *map(str, args)], env={"COLUMNS": "240", "TERM": "dumb"})


def lines(folder: Path) -> dict[str, int]:
    return {
        str(file.parent.relative_to(folder)): len(file.read_text().splitlines())
        for file in sorted(folder.glob("*/*/episodes.jsonl"))
    }


def test_chance_and_the_oracle_play_all_six(tmp_path):
    told = run("--policy", "random", "--policy", "oracle", "--instances", "3", "--samples", "2", "--out", tmp_path)
    assert told.exit_code == 0, told.output
    found = json.loads((tmp_path / "leaderboard.json").read_text())
    first, second = found["ranking"]
    assert (first["policy"], first["rank"], second["policy"], second["rank"]) == ("oracle", 1, "random", 2)
    for game in set(GAMES) - {"FrozenLake"}:  # it slips there
        assert first[game]["value"] == 1 and second[game]["value"] < 1 and first[game]["states"] == 3
    assert lines(tmp_path) == {f"{policy}/{game}": 6 for policy in ("oracle", "random") for game in GAMES}
    page = (tmp_path / "leaderboard.md").read_text()
    assert "Mean@2 over 3 instances" in page and page.index("| oracle |") < page.index("| random |")


SMALL = ("--env", "Sokoban", "--env", "Countdown", "--instances", "4", "--samples", "2")


def test_a_board_goes_on_and_grows(tmp_path):
    call = (*SMALL, "--out", tmp_path)
    assert run(*call, "--policy", "oracle").exit_code == 0
    file = tmp_path / "oracle" / "Sokoban" / "episodes.jsonl"
    whole = file.read_text()
    file.write_text("".join(whole.splitlines(keepends=True)[:3]) + '{"cut sh')
    told = run(*call)
    assert "oracle is not ranked, episodes are missing or failed: 5 of Sokoban" in told.output
    assert run(*call, "--policy", "oracle", "--policy", "random").exit_code == 0
    shown = json.loads(run(*call, "--json").stdout)
    assert [one["policy"] for one in shown["ranking"]] == ["oracle", "random"] and not shown["incomplete"]
    before = file.stat().st_mtime_ns
    assert run(*call, "--policy", "oracle").exit_code == 0 and file.stat().st_mtime_ns == before, "nothing was missing"


def test_a_model_behind_an_api_plays_every_environment(tmp_path):
    with endpoint("<think>up</think><answer>Up</answer>") as (url, requests):
        told = run(*SMALL, "--out", tmp_path, "--policy", f"api:m@{url}", "--retries", "0")
    (row,) = json.loads((tmp_path / "leaderboard.json").read_text())["ranking"]
    assert row["policy"] == "m" and requests and "not ranked" not in told.output


def test_other_sizes_are_not_mixed(tmp_path):
    assert run(*SMALL, "--out", tmp_path, "--policy", "random").exit_code == 0
    other = (*SMALL[:-1], "3", "--out", tmp_path)
    assert "holds no results of these settings" in run(*other).output
    assert run(*other, "--policy", "random").exit_code == 2


def test_the_instances_are_nobodys_training_states():
    board = Board(instances=5)
    for game in GAMES:
        plan = board.plan(game)
        assert [one.seed for one in plan[:: board.samples]] == [SEED + i for i in range(5)] and len(plan) == 40
        assert {one.env for one in plan} == {game}
        make(plan[0].env_id, **plan[0].kwargs).reset(seed=plan[0].seed)


# -- ranks ------------------------------------------------------------------------------------------------------------


def records(rates, samples=4, first=0):
    """A record for every sample of a state with this success rate."""
    return [
        {"seed": first + state, "success": i < round(rate * samples), "excluded": False}
        for state, rate in enumerate(rates)
        for i in range(samples)
    ]


def test_policies_that_do_not_differ_share_a_rank():
    board = Board(("Sokoban", "Countdown"), instances=20, samples=4)
    random = np.random.default_rng(0)
    base = random.integers(0, 5, 20) / 4
    swapped = base.copy()
    swapped[[0, 1]] = swapped[[1, 0]]
    best = np.ones(20)
    tables = {"a": base, "b": swapped, "best": best}
    found = ranked({name: {game: records(one) for game in board.games} for name, one in tables.items()}, board)
    assert {one["policy"]: one["rank"] for one in found["ranking"]} == {"best": 1, "a": 2, "b": 2}
    assert found["ranking"][1]["Sokoban"]["value"] == pytest.approx(base.mean())


def test_a_small_but_constant_lead_is_a_rank():
    board = Board(("Sokoban", "Countdown"), instances=8, samples=4)
    base = np.tile([0.0, 0.25, 0.5, 0.75], 2)
    tables = {"a": base, "b": base + 0.25}
    found = ranked({name: {game: records(one) for game in board.games} for name, one in tables.items()}, board)
    a, b = found["ranking"][1], found["ranking"][0]
    assert (b["policy"], b["rank"], a["rank"]) == ("b", 1, 2)
    assert a["overall"]["high"] > b["overall"]["low"], "their own intervals overlap; the paired difference decides"


def test_a_policy_that_misses_episodes_is_not_ranked():
    board = Board(("Sokoban",), instances=3, samples=4)
    failed = [{**one, "excluded": i == 0} for i, one in enumerate(records([1, 1, 1]))]
    found = ranked({"a": {"Sokoban": records([1, 1, 1])}, "b": {"Sokoban": failed}, "c": {}}, board)
    assert [one["policy"] for one in found["ranking"]] == ["a"]
    assert found["incomplete"] == {"b": {"Sokoban": 1}, "c": {"Sokoban": 12}}


def test_strata_weigh_alike_whatever_their_size():
    one, other = [0.0, 1.0, 1.0, 0.0, 1.0, 1.0], [0.5, 0.25]
    found = stratified([one, other])
    assert found.value == pytest.approx((np.mean(one) + np.mean(other)) / 2)
    welch = stats.ttest_ind(one, [-value for value in other], equal_var=False).confidence_interval()  # their sum
    assert (found.low, found.high) == (pytest.approx(welch.low / 2), pytest.approx(welch.high / 2))
    assert (stratified([one]).low, stratified([one]).high) == pytest.approx((mean(one).low, mean(one).high))


def test_games_that_a_policy_always_wins_are_not_known_exactly():
    generator = np.random.default_rng(0)
    truth, instances, runs = (0.4, 0.985, 0.99, 0.995, 0.99, 0.985), 16, 400
    within = 0
    for _ in range(runs):
        strata = [generator.binomial(1, rate, instances).astype(float) for rate in truth]
        found = stratified(strata, (0.0, 1.0))
        within += found.low <= np.mean(truth) <= found.high
    assert within / runs > 0.93, "at 95 %"
    board = Board(("Sokoban", "Countdown"), instances=16, samples=4)
    sure = {"oracle": {game: records(np.ones(16)) for game in board.games}}
    (row,) = ranked(sure, board)["ranking"]
    assert 1 - row["overall"]["low"] == pytest.approx((1 - row["Sokoban"]["low"]) / np.sqrt(2))


@pytest.mark.parametrize(
    ("board", "told"), [({"games": ("Sokobann",)}, "did you mean Sokoban"), ({"instances": 1}, "2 instances")]
)
def test_a_board_that_cannot_be_played_is_refused(board, told):
    with pytest.raises(RecipeError, match=told):
        Board(**board)
