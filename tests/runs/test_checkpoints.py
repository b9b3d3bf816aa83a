"""Checkpoints that are missing, cut short or half written: what is gone on from, what is said, what stays."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from pickle import UnpicklingError

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from saved_checkpoints import cut, save

from ragen_verl.errors import RecipeError
from ragen_verl.runs.checkpoints import (
    Wanted,
    broken,
    damage,
    damage_of_model,
    point_at,
    pointed_at,
    prune,
    saving,
    survey,
    survey_of,
)

EVERY = Wanted(actor=("model", "optim", "extra_state"))
SHARD = "actor/model_world_size_1_rank_0.pt"


@pytest.fixture(scope="module")
def whole() -> Iterator[Path]:
    """A checkpoint of two ranks with a critic."""
    with tempfile.TemporaryDirectory() as folder:
        yield save(Path(folder), 20, ranks=2, critic=True)


def files(checkpoint: Path) -> list[str]:
    return sorted(str(path.relative_to(checkpoint)) for path in checkpoint.rglob("*.pt"))


def test_a_whole_checkpoint_has_no_damage(whole: Path) -> None:
    assert damage(whole, EVERY) is None and len(files(whole)) == 13


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_file_cut_anywhere_is_named(whole: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(files(whole)))
    content = (whole / name).read_bytes()
    length = data.draw(st.integers(0, len(content) - 1))
    (whole / name).write_bytes(content[:length])
    try:
        assert damage(whole) == f"{name} {'is cut short' if length else 'is empty'}"
        with pytest.raises((RuntimeError, EOFError, UnpicklingError)):  # what is called damaged, torch does not load
            torch.load(whole / name, weights_only=False)
    finally:
        (whole / name).write_bytes(content)
    assert damage(whole) is None


@pytest.mark.parametrize(
    "name", ["actor/optim_world_size_2_rank_1.pt", "critic/model_world_size_2_rank_0.pt", "data.pt"]
)
def test_a_file_that_is_not_there_is_named(whole: Path, name: str, tmp_path: Path) -> None:
    checkpoint = shutil.copytree(whole, tmp_path / "global_step_20")
    (checkpoint / name).unlink()
    assert damage(checkpoint) == f"{name} is missing"


def test_a_kind_of_shards_counts_where_it_is_loaded(tmp_path: Path) -> None:
    checkpoint = save(tmp_path, 1)
    (checkpoint / "actor" / "optim_world_size_1_rank_0.pt").unlink()
    assert damage(checkpoint) is None
    assert damage(checkpoint, EVERY) == "actor/optim_world_size_1_rank_0.pt is missing"


def test_several_machines_may_keep_their_own_shards(tmp_path: Path) -> None:
    checkpoint = save(tmp_path, 1, ranks=2)
    for shard in checkpoint.glob("actor/*_rank_1.pt"):
        shard.unlink()
    config = OmegaConf.create({"trainer": {"nnodes": 2}})
    assert damage(checkpoint, Wanted.of(config)) is None and damage(checkpoint) is not None
    cut(checkpoint / "actor" / "optim_world_size_2_rank_0.pt")
    assert damage(checkpoint, Wanted.of(config)) == "actor/optim_world_size_2_rank_0.pt is cut short"


def test_shards_of_another_number_of_ranks_may_stay(tmp_path: Path) -> None:
    save(tmp_path, 3, ranks=2)
    assert damage(save(tmp_path, 3, ranks=1), EVERY) is None


def test_what_is_loaded_is_what_the_recipe_says() -> None:
    contents = {"checkpoint": {"load_contents": ["model", "extra", "hf_model"]}}
    found = Wanted.of(OmegaConf.create({"actor_rollout_ref": {"actor": contents}}))
    assert found == Wanted(("model", "extra_state"), ("model",), True)


def test_weights_alone_are_looked_at_for_an_export(tmp_path: Path) -> None:
    checkpoint = save(tmp_path, 1)
    cut(checkpoint / "actor" / "optim_world_size_1_rank_0.pt")
    assert damage_of_model(checkpoint / "actor") is None
    cut(checkpoint / SHARD)
    assert damage_of_model(checkpoint / "actor") == f"{SHARD} is cut short"
    assert damage_of_model(tmp_path) == f"{tmp_path.name} has no shards"


def test_a_folder_in_a_files_place_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / "data.pt").mkdir()
    assert broken(tmp_path / "data.pt") == "cannot be read (Is a directory)"


# -- where a run goes on ----------------------------------------------------------------------------------------------


def test_the_newest_whole_one_is_gone_on_from(tmp_path: Path) -> None:
    save(tmp_path, 20)
    cut(save(tmp_path, 40) / SHARD)
    found = survey(tmp_path)
    assert (found.step, found.named) == (20, 40)
    assert found.sentences() == [f"The checkpoint of step 40 ({SHARD} is cut short) is damaged; going on from step 20."]
    assert pointed_at(tmp_path) == 40  # to look changes nothing
    found.settle()
    assert pointed_at(tmp_path) == 20 and (tmp_path / "global_step_40").is_dir()
    assert survey(tmp_path).step == 20


def test_a_run_in_order_says_nothing(tmp_path: Path) -> None:
    assert survey(tmp_path).step is None and survey(tmp_path / "none").sentences() == []
    for step in (20, 40):
        save(tmp_path, step)
    assert survey(tmp_path).step == 40 and survey(tmp_path).sentences() == []


def test_none_whole_is_an_error_and_no_new_start(tmp_path: Path) -> None:
    for step in (20, 40):
        cut(save(tmp_path, step) / "data.pt")
    with pytest.raises(RecipeError, match=r"step 40: data\.pt is cut short; step 20.*resume_mode=disable") as caught:
        survey(tmp_path)
    assert str(caught.value).count(". ") == 0


def test_a_checkpoint_that_went_missing_is_said(tmp_path: Path) -> None:
    save(tmp_path, 20)
    shutil.rmtree(save(tmp_path, 40))
    assert survey(tmp_path).sentences() == [
        "The checkpoint of step 40 (it is not there) is damaged; going on from step 20."
    ]
    shutil.rmtree(tmp_path / "global_step_20")
    with pytest.raises(RecipeError, match=r"step 40, which .* names, is not there"):
        survey(tmp_path)


def test_what_was_being_written_is_removed(tmp_path: Path) -> None:
    for step in (20, 40):
        save(tmp_path, step)
    point_at(tmp_path, 20)  # verl writes it after all other files
    (tmp_path / "global_step_40" / "data.pt").unlink()
    cut(tmp_path / "global_step_40" / "actor" / "optim_world_size_1_rank_0.pt")
    found = survey(tmp_path)
    assert found.step == 20 and found.unfinished == (40,)
    assert "step 40 was still being written" in found.sentences()[0] and len(found.sentences()) == 1
    found.settle()
    assert not (tmp_path / "global_step_40").exists() and survey(tmp_path).sentences() == []


def test_a_first_checkpoint_that_broke_off_is_none(tmp_path: Path) -> None:
    (save(tmp_path, 5) / "data.pt").unlink()
    (tmp_path / "latest_checkpointed_iteration.txt").unlink()
    found = survey(tmp_path)
    assert found.step is None and found.unfinished == (5,)


def test_a_pointer_that_was_set_back_is_obeyed(tmp_path: Path) -> None:
    for step in (20, 40):
        save(tmp_path, step)
    point_at(tmp_path, 20)
    assert survey(tmp_path).step == 20 and survey(tmp_path).sentences() == []
    assert (tmp_path / "global_step_40").is_dir()


@pytest.mark.parametrize("text", ["", "forty"])
def test_a_pointer_that_a_full_disk_emptied_is_written_anew(tmp_path: Path, text: str) -> None:
    save(tmp_path, 20)
    (tmp_path / "latest_checkpointed_iteration.txt").write_text(text)
    found = survey(tmp_path)
    assert "names no step; going on from the newest checkpoint, step 20" in found.sentences()[0]
    found.settle()
    assert pointed_at(tmp_path) == 20


def test_old_checkpoints_without_models_are_passed_over(tmp_path: Path) -> None:
    for step in (10, 20):
        save(tmp_path, step)
    shutil.rmtree(tmp_path / "global_step_10" / "actor")  # what verl leaves of those that are too many
    assert survey(tmp_path).step == 20
    cut(tmp_path / "global_step_20" / SHARD)
    with pytest.raises(RecipeError, match="No checkpoint"):
        survey(tmp_path)


def test_the_recipe_decides_where_to_look(tmp_path: Path) -> None:
    cut(save(tmp_path, 4) / "data.pt")
    path = str(tmp_path / "global_step_4")
    made = {"default_local_dir": str(tmp_path), "resume_from_path": None, "resume_mode": "auto"}
    with pytest.raises(RecipeError, match="No checkpoint"):
        survey_of(OmegaConf.create({"trainer": made}))
    assert survey_of(OmegaConf.create({"trainer": {**made, "resume_mode": "disable"}})) is None
    with pytest.raises(RecipeError, match=r"that checkpoint is damaged \(data\.pt is cut short\)"):
        survey_of(OmegaConf.create({"trainer": {**made, "resume_mode": "resume_path", "resume_from_path": path}}))


# -- writing one ------------------------------------------------------------------------------------------------------


def test_one_that_fails_is_removed_and_the_last_stays_named(tmp_path: Path) -> None:
    save(tmp_path, 20)
    with pytest.raises(KeyError), saving(tmp_path / "global_step_40"):
        (save(tmp_path, 40) / "data.pt").unlink()
        raise KeyError("of another kind")
    assert not (tmp_path / "global_step_40").exists() and pointed_at(tmp_path) == 20


def test_one_that_is_whole_stays_if_what_follows_fails(tmp_path: Path) -> None:
    with pytest.raises(KeyError), saving(tmp_path / "global_step_40"):
        save(tmp_path, 40)
        (tmp_path / "latest_checkpointed_iteration.txt").write_text("")
        raise KeyError("after it")
    assert pointed_at(tmp_path) == 40


def test_half_a_checkpoint_of_before_is_not_mixed_in(tmp_path: Path) -> None:
    cut(save(tmp_path, 40, ranks=2) / "data.pt")
    with saving(tmp_path / "global_step_40"):
        save(tmp_path, 40, ranks=1)
    assert damage(tmp_path / "global_step_40") is None
    assert not list(tmp_path.glob("global_step_40/actor/*world_size_2*"))


def test_no_file_is_left_beside_the_pointer(tmp_path: Path) -> None:
    point_at(tmp_path, 3)
    assert os.listdir(tmp_path) == ["latest_checkpointed_iteration.txt"]


# -- removing old ones ------------------------------------------------------------------------------------------------


def steps(folder: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("global_step_")) for path in folder.glob("global_step_*"))


def limited(actor: int | None, critic: int | None = 1, **checkpoint: object) -> OmegaConf:
    trainer = {"max_actor_ckpt_to_keep": actor, "max_critic_ckpt_to_keep": critic}
    return OmegaConf.create({"trainer": trainer, "actor_rollout_ref": {"actor": {"checkpoint": checkpoint}}})


def test_those_of_before_a_resume_are_counted(tmp_path: Path) -> None:
    for step in (2, 4, 6, 8):
        save(tmp_path, step)
    shutil.rmtree(tmp_path / "global_step_2" / "actor")  # what verl leaves of one that it removes
    prune(tmp_path / "global_step_8", limited(2))
    assert steps(tmp_path) == [6, 8] and pointed_at(tmp_path) == 8


@pytest.mark.parametrize(
    ("actor", "critic", "has_critic", "left"),
    [(1, 1, False, [8]), (1, 3, False, [8]), (1, 3, True, [4, 6, 8]), (None, 2, True, [2, 4, 6, 8])],
)
def test_the_larger_limit_counts(
    actor: int | None, critic: int, has_critic: bool, left: list[int], tmp_path: Path
) -> None:
    for step in (2, 4, 6, 8):
        save(tmp_path, step, critic=has_critic)
    prune(tmp_path / "global_step_8", limited(actor, critic))
    assert steps(tmp_path) == left


def test_nothing_goes_before_the_new_one_is_whole(tmp_path: Path) -> None:
    for step in (2, 4):
        save(tmp_path, step)
    prune(tmp_path / "global_step_4", limited(1, async_save=True))
    cut(tmp_path / "global_step_4" / SHARD)
    prune(tmp_path / "global_step_4", limited(1))
    assert steps(tmp_path) == [2, 4]


def test_newer_ones_of_a_run_that_was_set_back_stay(tmp_path: Path) -> None:
    for step in (2, 9, 4):
        save(tmp_path, step)
    prune(tmp_path / "global_step_4", limited(1))
    assert steps(tmp_path) == [4, 9]
