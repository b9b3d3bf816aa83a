"""`train --dry-run` prints the sizes that the run will have and what it changes, and starts nothing."""

from __future__ import annotations

from pathlib import Path

from omegaconf import OmegaConf
from typer.testing import CliRunner

from ragen_verl.cli import app
from ragen_verl.cli.dry_run import differences, sizes
from ragen_verl.validation.composition import compose


def resolved(recipe: str, *overrides: str):
    config = compose(recipe, overrides)
    OmegaConf.resolve(config)
    return config


def test_the_sizes_are_those_of_the_recipe() -> None:
    found = sizes(resolved("nano/sokoban", "actor_rollout_ref.actor.ppo_epochs=3"))
    config = resolved("nano/sokoban")
    groups = sum(env.groups for env in config.ragen.train.envs)
    samples = config.actor_rollout_ref.rollout.n
    assert found["a step plays"].startswith(f"{groups} groups x {samples} samples = {groups * samples} trajectories")
    updates = 3 * groups // config.actor_rollout_ref.actor.ppo_mini_batch_size
    assert f"{groups} groups in {updates} updates" in found["a step trains"]
    third = resolved("nano/frozen_lake", "algorithm=nano_starpo_s", "ragen.filter.updates=constant")
    whole = sum(env.groups for env in third.ragen.train.envs) // third.actor_rollout_ref.actor.ppo_mini_batch_size
    assert whole > 1 and f" in {whole} updates" in sizes(third)["a step trains"]
    assert "at least" in sizes(resolved("nano/sokoban", "algorithm=ragen2_grpo"))["a step trains"]


def test_what_a_run_changes_is_named(tmp_path: Path) -> None:
    overrides = ["trainer.total_training_steps=7", "trainer.experiment_name=other"]
    base, changed = differences("nano/bandit", overrides, compose("nano/bandit", overrides))
    steps = compose("nano/bandit").trainer.total_training_steps
    assert (base, changed) == ("nano/bandit", {"trainer.total_training_steps": (steps, 7)})
    file = tmp_path / "mine.yaml"
    file.write_text("defaults: [/nano/bandit, _self_]\nragen: {train: {seed: 5}}\n")
    base, changed = differences(str(file), [], compose(str(file)))
    assert (base, list(changed)) == ("nano/bandit", ["ragen.train.seed"])


def test_a_dry_run_prints_sizes_and_memory() -> None:
    told = CliRunner().invoke(app, ["train", "paper/sokoban_starpo_s", "--dry-run"], terminal_width=300)
    assert told.exit_code == 0, told.output
    assert "128 trajectories" in told.output and "ragen.filter.strategy: none -> top_k" in told.output
    assert "largest pass (actor update)" in " ".join(told.output.split())
    full = CliRunner().invoke(app, ["train", "nano/bandit", "--dry-run", "--full"])
    assert OmegaConf.create(full.stdout).ragen.train.envs[0].id == "Bandit-v0"
    refused = CliRunner().invoke(app, ["train", "nano/bandit", "--full"])
    assert refused.exit_code == 2 and "add --dry-run" in refused.stderr


def test_a_file_without_a_recipe_to_build_on_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("ragen: {train: {seed: 5}}\n")
    refused = CliRunner().invoke(app, ["train", str(tmp_path / "mine.yaml"), "--dry-run"])
    assert refused.exit_code == 2 and "builds on no recipe: begin it with a defaults list" in refused.stderr
