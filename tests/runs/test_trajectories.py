"""Files of trajectories: written in one piece, read back, filtered, tolerant of what a kill or a disk did to them."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
from datasets import load_dataset

from ragen_verl.errors import RecipeError
from ragen_verl.rollout.trajectory import StopReason, Trajectory, Turn
from ragen_verl.runs.folder import RunFolder
from ragen_verl.runs.trajectories import features, files, messages, read
from ragen_verl.runs.writing import TaskPrompts, TrajectoryWarning, appending


def record(env: str = "Lake", seed: int = 1, rollout_index: int = 0, reward: float = 1.0, **infos) -> dict:
    solved = reward > 0
    turn = Turn(
        "state", [1, 2], [3], [-0.5], "</think><answer>Up</answer>", actions=["Up"], executed=["Up"],
        reward=reward, infos=[{"success": solved, **infos}], user=f"Turn 1: {env}", prefill="<think>",
    )  # fmt: skip
    stop = StopReason.SOLVED if solved else StopReason.TURN_BUDGET
    texts = {"system": "Be good.", "task_prompt": f"The task of {env}."}
    return Trajectory(f"{env}-v0", seed, rollout_index, turns=[turn], stop_reason=stop, env_name=env, **texts).record()


def failed() -> dict:
    return Trajectory("Lake-v0", 1, 9, stop_reason=StopReason.ENV_ERROR, error="reset: no", env_name="Lake").record()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of two environments whose infos and metrics differ, and of three splits' steps."""
    folder = RunFolder(tmp_path / "run")
    shop = {"price": 2.5, "title": "ab", "left": [1, "x"], "nested": {"a": None}}
    folder.write_trajectories("train", 1, [{**record(holes=3), "kept": True}, record("Shop", 2, **shop)])
    folder.write_trajectories("train", 2, [record(reward=-1, holes="many"), failed()])
    folder.write_trajectories("train", 12, [record("Shop", 3, reward=0.0, price="?")])
    folder.write_trajectories("val", 0, [record(seed=100)])
    return folder.path


def told(path: Path, **filters) -> tuple[list[dict], list[str]]:
    """What is read, and the warnings."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        records = list(read(path, **filters))
    assert all(one.category is TrajectoryWarning for one in found)
    return records, [str(one.message) for one in found]


def test_what_is_written_is_read_back_with_split_and_step(run: Path) -> None:
    records, warned = told(run)
    assert not warned
    places = [("train", 1), ("train", 1), ("train", 2), ("train", 2), ("train", 12), ("val", 0)]
    assert [(one["split"], one["step"]) for one in records] == places
    assert records[0] == record(holes=3) | {"split": "train", "step": 1, "kept": True}
    assert [one.get("kept") for one in records] == [True, False, False, False, False, None]
    assert records[5] == record(seed=100) | {"split": "val", "step": 0}


def test_the_texts_of_a_task_are_stored_once(run: Path) -> None:
    texts = [json.loads(one) for one in (run / "preambles.jsonl").read_text().splitlines()]
    assert [one["head"] for one in texts] == ["The task of Lake.", "The task of Shop.", ""]
    RunFolder(run).write_trajectories("val", 5, [record(), record("Shop"), record("New")])
    assert len((run / "preambles.jsonl").read_text().splitlines()) == 4
    assert "The task" not in (run / "trajectories" / "train" / "000001.jsonl").read_text()
    (shown,) = [messages(one) for one in read(run, steps={12})]
    assert shown == [
        {"role": "system", "content": "Be good."},
        {"role": "user", "content": "The task of Shop.\n\nTurn 1: Shop"},
        {"role": "assistant", "content": "<think></think><answer>Up</answer>"},
    ]


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        ({"split": "train"}, 5),
        ({"split": "generalisation"}, 0),
        ({"steps": [2, 12]}, 3),
        ({"env": "Shop"}, 2),
        ({"success": True}, 3),
        ({"success": False, "split": "train"}, 3),
        ({"stop_reason": "environment_error"}, 1),
        ({"min_return": 0.0}, 5),
        ({"where": lambda one: one["seed"] == 100}, 1),
    ],
)
def test_filters_choose(run: Path, filters: dict, count: int) -> None:
    assert len(list(read(run, **filters))) == count


def test_a_step_written_again_leaves_nothing_of_the_old_file(run: Path) -> None:
    RunFolder(run).write_trajectories("train", 1, [record(seed=7)])
    assert [one["seed"] for one in read(run, split="train", steps=[1])] == [7]
    assert [file.name for file in sorted((run / "trajectories" / "train").iterdir())] == [
        "000001.jsonl",
        "000002.jsonl",
        "000012.jsonl",
    ]


# -- datasets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("typed", [False, True])
def test_datasets_loads_mixed_environments(run: Path, tmp_path: Path, backwards: bool, typed: bool) -> None:
    train = sorted(map(str, run.glob("trajectories/train/*.jsonl")), reverse=backwards)
    data = {"train": train, "val": [str(run / "trajectories/val/000000.jsonl")]}
    options = {"features": features()} if typed else {}
    loaded = load_dataset("json", data_files=data, cache_dir=str(tmp_path / "cache"), **options)
    assert {name: len(split) for name, split in loaded.items()} == {"train": 5, "val": 1}
    by_seed = {row["seed"]: row for row in loaded["train"]}
    assert json.loads(by_seed[2]["turns"][0]["infos"][0])["nested"] == {"a": None}
    assert json.loads(by_seed[3]["env_metrics"]) == {} and by_seed[3]["metrics"]["return"] == 0.0
    assert json.loads(by_seed[2]["env_metrics"]) == {"price": 2.5}
    assert by_seed[2]["preamble"] in (run / "preambles.jsonl").read_text()


def test_features_hold_for_files_whose_lists_are_empty(tmp_path: Path) -> None:
    """Here `datasets` alone would take an empty list's type for the column's and stop at the next file."""
    folder = RunFolder(tmp_path / "run")
    folder.write_trajectories("train", 1, [failed()])
    folder.write_trajectories("train", 2, [record()])
    train = sorted(map(str, folder.path.glob("trajectories/train/*.jsonl")))
    loaded = load_dataset("json", data_files=train, features=features(), cache_dir=str(tmp_path / "c"), split="train")
    assert [len(row["turns"]) for row in loaded] == [0, 1]


def test_features_name_the_columns_of_a_file(run: Path) -> None:
    row = json.loads((run / "trajectories/train/000001.jsonl").read_text().splitlines()[0])
    assert set(features()) == set(row)
    assert set(features()["turns"].feature) == set(row["turns"][0])
    turn = Turn("s", [1], [2]).record(1, lambda ids: [0])
    assert set(features(tokens=True)["turns"].feature["tokens"]) == set(turn["tokens"])


# -- what goes wrong --------------------------------------------------------------------------------------------------


def test_a_line_cut_short_is_left_out_with_a_warning(run: Path) -> None:
    file = run / "trajectories" / "train" / "000001.jsonl"
    file.write_text(file.read_text()[:-200])
    records, warned = told(run, steps=[1])
    assert [one["seed"] for one in records] == [1]
    assert warned == [f"{file}, line 2, is left out: it is cut short."]


def test_broken_lines_are_left_out_and_the_others_read(run: Path) -> None:
    file = run / "trajectories" / "train" / "000001.jsonl"
    first, second = file.read_bytes().splitlines()
    newer = json.dumps(json.loads(first) | {"schema": 99}).encode()
    file.write_bytes(b"\n".join([b"{no", first, b"[1]", newer, b"", b'{"schema": 3}', second, b""]))
    records, warned = told(run, steps=[1])
    assert [one["seed"] for one in records] == [1, 2]
    assert [text.partition(", line ")[2][:1] for text in warned] == ["1", "3", "4", "6"]
    assert "install a newer one" in warned[2] and "is no trajectory" in warned[3]


def test_bytes_that_are_no_text_lose_nothing_else(run: Path) -> None:
    file = run / "trajectories" / "train" / "000012.jsonl"
    text = file.read_bytes()
    file.write_bytes(text.replace(b'"state": "state"', b'"state": "\xff\\ud800 x"'))
    ((one,), warned) = told(run, steps=[12])
    assert one["turns"][0]["state"] == "\N{REPLACEMENT CHARACTER}? x" and one["seed"] == 3
    assert len(warned) == 1 and "no UTF-8" in warned[0]
    one["turns"][0]["state"].encode()


def test_older_records_are_read_beside_new_ones(run: Path) -> None:
    old = record(seed=50, holes=1)
    for key in ("preamble", "package", "protocol", "started"):
        del old[key]
    for key in ("user", "shown_from", "prefix", "generate_seconds", "env_seconds"):
        del old["turns"][0][key]
    file = run / "trajectories" / "train" / "000003.jsonl"
    file.write_text(json.dumps(old | {"schema": 2, "kept": True}) + "\n")
    ((one,), warned) = told(run, steps=[3])
    assert (one["seed"], one["kept"], one["preamble"], one["turns"][0]["infos"]) == (
        50,
        True,
        None,
        old["turns"][0]["infos"],
    )
    assert not warned


def test_without_task_prompts_all_but_the_messages_is_read(run: Path) -> None:
    (run / "preambles.jsonl").unlink()
    records, warned = told(run, split="train", steps=[1])
    assert len(records) == 2 and not warned
    with pytest.raises(RecipeError, match="preambles"):
        messages(records[0])


def test_a_line_after_one_that_was_cut_short_stands_alone(tmp_path: Path) -> None:
    file = tmp_path / "new" / "lines.jsonl"
    with appending(file) as out:
        out.write('{"a": 1}\n{"b"')
    for number in range(2):
        with appending(file) as out:
            out.write(f"{number}\n")
    assert file.read_text() == '{"a": 1}\n{"b"\n0\n1\n'


def test_a_task_prompt_after_one_that_was_cut_short_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "preambles.jsonl"
    file.write_text('{"key": "ab", "sys')
    with pytest.warns(TrajectoryWarning, match="cut short"):
        TaskPrompts(file).add({"system": "s", "head": "h"})
    with pytest.warns(TrajectoryWarning, match="no JSON"):
        assert [one["head"] for one in TaskPrompts(file).known.values()] == ["h"]


@pytest.mark.parametrize("made", [True, False])
def test_a_run_without_trajectories_says_so(tmp_path: Path, made: bool) -> None:
    folder = tmp_path / "run"
    if made:
        folder.mkdir()
    with pytest.raises(RecipeError, match="has no trajectories" if made else "does not exist"):
        files(folder)
