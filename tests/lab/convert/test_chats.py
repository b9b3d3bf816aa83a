"""Chats and preference pairs, in trl's formats, from the messages that the model saw."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from datasets import load_dataset
from ragen_lab.convert.chats import preferences, sft
from typer.testing import CliRunner

from ragen_verl.cli import app
from ragen_verl.errors import RecipeError
from ragen_verl.rollout.trajectory import StopReason, Trajectory, Turn
from ragen_verl.runs.folder import RunFolder


def record(rollout_index: int, ret: float, seed: int = 7, turns: int = 2, row_per_turn: bool = False, **more) -> dict:
    made = [
        Turn("s", [1], [2], text=f"{rollout_index}.{number}", user=f"turn {number}", prefill="<answer>",
             shown_from=number if row_per_turn else 1, reward=ret if number == turns else 0.0)
        for number in range(1, turns + 1)
    ]  # fmt: skip
    stop = more.pop("stop", StopReason.SOLVED if ret > 0 else StopReason.TURN_BUDGET)
    episode = Trajectory("Walk-v0", seed, rollout_index, turns=made, stop_reason=stop, row_per_turn=row_per_turn)
    episode.system, episode.task_prompt = "Be good.", more.pop("head", "Walk.")
    return episode.record() | {"split": "train", "step": 1} | more


def user(content: str) -> dict:
    return {"role": "user", "content": content}


def said(content: str) -> dict:
    return {"role": "assistant", "content": f"<answer>{content}"}


SYSTEM = {"role": "system", "content": "Be good."}
FAILED = record(8, 9.0, stop=StopReason.ENV_ERROR)
UNBEGUN = record(9, 9.0, turns=0)


def test_a_trajectory_is_one_chat() -> None:
    (chat,) = sft([record(3, 1.0), FAILED, UNBEGUN])
    assert chat["messages"] == [SYSTEM, user("Walk.\n\nturn 1"), said("3.1"), user("turn 2"), said("3.2")]
    assert {key: chat[key] for key in ("env", "seed", "rollout_index", "return", "success")} == {
        "env": "Walk-v0", "seed": 7, "rollout_index": 3, "return": 1.0, "success": True,
    }  # fmt: skip


def test_where_every_turn_was_a_row_every_turn_is_a_chat() -> None:
    chats = [one["messages"] for one in sft([record(3, 1.0, row_per_turn=True)])]
    assert chats == [[SYSTEM, user("Walk.\n\nturn 1"), said("3.1")], [SYSTEM, user("Walk.\n\nturn 2"), said("3.2")]]


def test_a_pair_is_the_best_of_a_group_against_its_worst() -> None:
    (pair,) = preferences([record(0, 0.5), record(1, -1.0), record(2, 1.0), record(3, 1.0), record(4, -1.0), FAILED])
    assert pair["prompt"] == [SYSTEM, user("Walk.\n\nturn 1")]
    assert pair["chosen"] == [said("2.1"), user("turn 2"), said("2.2")]
    assert pair["rejected"] == [said("1.1"), user("turn 2"), said("1.2")]
    assert (pair["margin"], pair["return_chosen"], pair["return_rejected"], pair["seed"]) == (2.0, 1.0, -1.0, 7)


def test_groups_are_of_one_state_step_and_opening() -> None:
    others = [{"seed": 8}, {"step": 2}, {"split": "val"}, {"head": "Run."}, {"policy": "other"}, {"env": "Other"}]
    assert not list(preferences([record(0, 1.0), *(record(1, 0.0, **other) for other in others)]))
    assert len(list(preferences([record(0, 1.0), record(1, 0.0)]))) == 1


@pytest.mark.parametrize(("returns", "margin", "pairs"), [((1, 1), 0.0, 0), ((1, 0.5), 0.5, 1), ((1, 0.6), 0.5, 0)])
def test_a_pair_needs_its_margin(returns: tuple[float, float], margin: float, pairs: int) -> None:
    records = [record(place, float(one)) for place, one in enumerate(returns)]
    assert len(list(preferences(records, margin))) == pairs


def test_pairs_of_turns_that_were_rows_are_refused() -> None:
    with pytest.raises(RecipeError, match="convert them to sft"):
        list(preferences([record(0, 1.0, row_per_turn=True)]))


# -- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = RunFolder(tmp_path / "run")
    folder.write_trajectories("train", 1, [record(0, 1.0), record(1, -1.0), FAILED])
    folder.write_trajectories("train", 2, [record(0, 0.25, seed=8), record(1, 0.0, seed=8)])
    folder.write_trajectories("val", 2, [record(0, 1.0, seed=100)])
    return folder.path


def converted(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["convert", *map(str, arguments)])
    return done.exit_code, " ".join(done.output.split())


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (["--to", "sft"], 4),
        (["--to", "sft", "--success"], 2),
        (["--to", "sft", "--split", "val"], 1),
        (["--to", "sft", "--failed"], 2),
        (["--to", "sft", "--min-return", "0.5", "--split", "train"], 1),
        (["--to", "sft", "--step", "1"], 2),
        (["--to", "preferences"], 2),
        (["--to", "preferences", "--margin", "0.5"], 1),
    ],
)
def test_the_command_writes_what_the_options_choose(run: Path, tmp_path: Path, options: list[str], count: int) -> None:
    out = tmp_path / "new" / "data.jsonl"
    code, told = converted(run, *options, "--out", out)
    assert code == 0 and told.startswith(f"{count} "), told
    loaded = load_dataset("json", data_files=str(out), cache_dir=str(tmp_path / "cache"), split="train")
    assert len(loaded) == count
    assert [one.name for one in out.parent.iterdir()] == ["data.jsonl"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--to", "sft", "--out", "x", "--margin", "1"], "--margin is for --to preferences"),
        (["--to", "preferences", "--out", "x", "--success"], "--success is for --to sft, otel"),
        (["--to", "sft", "--endpoint", "http://a"], "--endpoint is for --to otel"),
        (["--to", "sft"], "Say where it goes: --out FILE."),
        (["--to", "otel"], "--out FILE, or --endpoint URL."),
        (["--to", "sft", "--out", "OUT", "--env", "Other"], "gave no chats"),
        (["--to", "preferences", "--out", "OUT", "--margin", "9"], "gave no pairs"),
        (["--to", "otel", "--out", "OUT", "--env", "Other"], "gave no trajectories as spans"),
    ],
)
def test_what_does_not_fit_is_said_and_nothing_written(run: Path, tmp_path: Path, options: list, told: str) -> None:
    out = tmp_path / "kept.jsonl"
    out.write_text("mine")
    code, output = converted(run, *(out if one == "OUT" else one for one in options))
    assert code == 2 and told in output
    assert out.read_text() == "mine" and sorted(one.name for one in tmp_path.iterdir()) == ["kept.jsonl", "run"]


@pytest.mark.parametrize("to", ["sft", "preferences"])
def test_held_out_episodes_are_taken_on_request_alone(run: Path, tmp_path: Path, to: str) -> None:
    RunFolder(run).write_trajectories("generalisation", 2, [record(0, 1.0, seed=200), record(1, 0.0, seed=200)])
    out = tmp_path / "x.jsonl"
    code, told = converted(run, "--to", to, "--out", out)
    assert code == 0 and "held-out" not in told
    assert {json.loads(line)["seed"] for line in out.read_text().splitlines()} == {7, 8}
    code, told = converted(run, "--to", to, "--out", out, "--split", "generalisation")
    assert code == 0 and "These are held-out episodes (generalisation)" in told
    assert {json.loads(line)["seed"] for line in out.read_text().splitlines()} == {200}
    code, told = converted(run / "trajectories" / "val" / "000002.jsonl", "--to", to, "--out", tmp_path / "none")
    assert code == 2 and "1 held-out ones are left out: --split val takes them" in told


def test_a_run_without_messages_says_what_it_lacks(run: Path, tmp_path: Path) -> None:
    (run / "preambles.jsonl").unlink()
    code, output = converted(run, "--to", "sft", "--out", tmp_path / "x.jsonl")
    assert code == 2 and "preambles.jsonl" in output and not (tmp_path / "x.jsonl").exists()


def test_a_broken_line_is_told_and_the_others_are_written(run: Path, tmp_path: Path) -> None:
    file = run / "trajectories" / "val" / "000002.jsonl"
    file.write_bytes(file.read_bytes() + file.read_bytes()[:90])
    done = CliRunner().invoke(app, ["convert", str(run), "--to", "sft", "--split", "val", "--out", str(tmp_path / "x")])
    assert done.exit_code == 0, done.output
    assert "line 2, is left out: it is cut short." in " ".join(done.output.split())
    assert len((tmp_path / "x").read_text().splitlines()) == 1
    assert json.loads((tmp_path / "x").read_text())["seed"] == 100
