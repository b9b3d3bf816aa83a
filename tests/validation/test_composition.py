"""Composing without verl gives what Hydra gives with it; mistakes are one sentence each."""

from __future__ import annotations

from pathlib import Path

import forked
import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_module
from hydra.core import plugins
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from recipe_composition import composed, hydra_finds_verl

from ragen_verl.errors import RecipeError
from ragen_verl.validation.composition import compose, quoted, verl_defaults


@pytest.mark.parametrize("recipe", ["nano/frozen_lake", "nano/mixture", "paper/sokoban_starpo_s"])
def test_a_recipe_is_what_verls_main_composes(recipe: str) -> None:
    overrides = ["hardware=cpu", "trainer.save_freq=3", "+data.extra=1"]
    assert OmegaConf.to_yaml(compose(recipe, overrides)) == OmegaConf.to_yaml(composed(recipe, *overrides))


OPTIONS = ["advantage", "filter", "rollout", "rewards.mine", "diagnostics.causes.mine", "diagnostics.indicators.mine"]


@pytest.mark.parametrize("block", OPTIONS)
def test_an_option_of_a_plugin_needs_no_plus(block: str) -> None:
    config = compose("nano/frozen_lake", [f"ragen.{block}.my_option=3"])
    assert OmegaConf.select(config, f"ragen.{block}.my_option") == 3
    with pytest.raises(RecipeError, match=r"^ragen\.stop\.my_option is not a key"):
        compose("nano/frozen_lake", ["ragen.stop.my_option=3"])


def test_verls_own_main_takes_own_files_and_options(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("defaults: [/nano/bandit, _self_]\ntrainer: {save_freq: 4}\n")
    arguments = ["--config-path", "pkg://ragen_verl.recipes", "--config-dir", str(tmp_path), "--config-name", "mine"]
    arguments += ["--cfg", "job"]
    code = f"import sys; sys.argv[1:] = {[*arguments, 'ragen.advantage.my_option=3']!r}\n"
    done = forked.run(code + "from verl.trainer.main_ppo import main; main()")
    config = OmegaConf.create(done.stdout[done.stdout.index("actor_rollout_ref:") :])
    assert config.ragen.advantage.my_option == 3 and config.trainer.save_freq == 4


def test_hydra_keeps_its_plugins() -> None:
    hydra_finds_verl()
    before = plugins.Plugins.instance().discover(SearchPathPlugin)
    compose("nano/bandit")
    assert before and plugins.Plugins.instance().discover(SearchPathPlugin) == before


@pytest.mark.parametrize("engine", ["dp", "megatron"])
def test_verls_defaults_are_verls(engine: str) -> None:
    with initialize_config_module("verl.trainer.config", version_base=None):
        wanted = hydra_compose("ppo_trainer", overrides=[f"model_engine={engine}"])
    assert verl_defaults(engine) == wanted


def test_a_file_of_ones_own_builds_on_the_package(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "defaults: [/nano/frozen_lake, _self_]\ntrainer: {save_freq: 4}\n"
        "ragen: {train: {envs: [{id: Bandit-v0, groups: 16}]}}\n"
    )
    config = compose(str(tmp_path / "mine.yaml"), ["trainer.test_freq=2"])
    assert (config.trainer.save_freq, config.trainer.test_freq, config.data.train_batch_size) == (4, 2, 16)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("trainer.total_training_step=5", "did you mean trainer.total_training_steps?"),
        ("total_training_steps=5", "did you mean trainer.total_training_steps?"),
        ("ragen.train.envs.0.grups=3", "did you mean ragen.train.envs.0.groups?"),
        ("algorithm=starpo", "did you mean starpo_s?"),
        ("algoritm=starpo_s", "did you mean algorithm?"),
        ("env=sokoban", "its parts: algorithm, hardware, mode, nano_model."),
        ("~trainer.save_frequency", "did you mean trainer.save_freq?"),
        ("+trainer.save_freq=1", "already at 'trainer.save_freq'"),
        ("trainer.save_freq=1,2", "names several values"),
        ("trainer.logger=[console", "cannot be read"),
        ("trainer.logger.x=1", "not a key"),
        ("trainer", "cannot be read"),
        ("=", "not a key"),
    ],
)
def test_hydras_mistakes_are_one_sentence(override: str, words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        compose("nano/frozen_lake", [override])
    assert words in str(caught.value) and "\n" not in str(caught.value) and "object_type" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [1\n", "is no YAML, line 2"),
        ("- 1\n", "holds no keys"),
        ("defaults: [/nano_bass, _self_]\n", "names nano_bass"),
    ],
)
def test_a_broken_file_is_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(RecipeError, match=words):
        compose(str(tmp_path / "mine.yaml"))


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1))
def test_a_quoted_value_is_read_back_unchanged(text: str) -> None:
    value = OverridesParser.create().parse_override(f"ragen.run.dir={quoted(text)}").value()
    assert str(value) == text
