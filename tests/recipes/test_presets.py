"""Every algorithm preset: what it says it is, alone and on top of the nano and the paper's base; what is refused."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import ragen_verl.recipes
import yaml
from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf
from paths import ROOT
from recipe_composition import changed, composed, hydra_finds_verl, verl_accepts
from refusals import refused

from ragen_verl.advantages import ESTIMATORS
from ragen_verl.advantages.registry import WEIGHTS
from ragen_verl.config.advantage import VERL_OPTIONS, Advantage
from ragen_verl.config.diagnostics import Diagnostics, Stop
from ragen_verl.config.filter import Filter
from ragen_verl.diagnostics.registry import CAUSES
from ragen_verl.extensions import options_of
from ragen_verl.filter import SCORES, STRATEGIES
from ragen_verl.rollout.context import CONTEXTS
from ragen_verl.training.losses import POLICY_LOSSES, TURN_MEAN
from ragen_verl.validation.losses import check_losses
from ragen_verl.validation.recipe import check

FOLDER = Path(ragen_verl.recipes.__path__[0]) / "algorithm"
PRESETS = sorted(file.stem for file in FOLDER.glob("*.yaml"))
# merged after the preset, unlike recipes/ragen.yaml
BASES = [
    file
    for pattern in ("*_base", "env/*", "hardware/*", "mode/*")
    for file in sorted(FOLDER.parent.glob(f"{pattern}.yaml"))
]
ACTOR = "actor_rollout_ref.actor."
AGGREGATIONS = ["token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]

# preset -> estimator, critic, clip_ratio_high, KL in reward, KL in loss, aggregation, filter's strategy, entropy bonus
MEANING = {
    "starpo_ppo": ("gae", True, 0.2, 0.001, None, "token-mean", "none", 0.001),
    "starpo_grpo": ("grpo", False, 0.2, None, 0.001, "token-mean", "none", 0.001),
    "starpo_s": ("gae", True, 0.28, None, None, "token-mean", "top_k", 0.001),
    "ragen2_ppo": ("gae", True, 0.28, None, None, "token-mean", "top_p", 0.001),
    "ragen2_dapo": ("gae", True, 0.28, None, None, "token-mean", "top_p", 0.001),
    "ragen2_grpo": ("grpo", False, 0.28, None, None, "seq-mean-token-mean", "top_p", 0.001),
    "ragen2_drgrpo": ("dr_grpo", False, 0.28, None, None, "seq-mean-token-sum", "top_p", 0.001),
    "gigpo": ("gigpo", False, 0.2, None, 0.01, "token-mean", "none", 0.001),
    "bilevel": ("bi_level_gae", True, 0.28, None, None, "token-mean", "top_k", 0.001),
    "nano_grpo": ("grpo", False, 0.28, None, None, "token-mean", "none", 0.0),
    "nano_drgrpo": ("dr_grpo", False, 0.28, None, None, "token-mean", "none", 0.0),
    "nano_starpo_s": ("gae", True, 0.28, None, None, "token-mean", "top_k", 0.001),
}

STATED = """
    ragen.filter.strategy ragen.filter.value ragen.advantage.weight algorithm.adv_estimator algorithm.use_kl_in_reward
    actor_rollout_ref.actor.use_kl_loss actor_rollout_ref.actor.clip_ratio actor_rollout_ref.actor.clip_ratio_low
    actor_rollout_ref.actor.clip_ratio_high actor_rollout_ref.actor.clip_ratio_c
    actor_rollout_ref.actor.policy_loss.loss_mode actor_rollout_ref.actor.loss_agg_mode
    actor_rollout_ref.actor.loss_scale_factor actor_rollout_ref.actor.entropy_coeff actor_rollout_ref.actor.ppo_epochs
    critic.enable
"""
STATED_WHERE = {
    ACTOR + "use_kl_loss": (ACTOR + "kl_loss_coef", ACTOR + "kl_loss_type"),
    "algorithm.use_kl_in_reward": (
        "algorithm.kl_penalty",
        "algorithm.kl_ctrl.type",
        "algorithm.kl_ctrl.kl_coef",
    ),
    "critic.enable": ("algorithm.gamma", "algorithm.lam", "critic.cliprange_value", "critic.loss_agg_mode"),
    "ragen.filter.strategy": tuple(
        f"ragen.filter.{key}" for key in ["score", "largest", "zero_variance", "loss_scaling", "updates", "on_empty"]
    ),
}


@cache
def alone(preset: str) -> DictConfig:
    """The preset with the presets it builds on, and nothing else."""
    hydra_finds_verl()
    with initialize_config_module("ragen_verl.recipes", version_base=None):
        return compose(f"algorithm/{preset}")


def leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        where = f"{path}.{key}" if path else str(key)
        yield from leaves(value, where) if isinstance(value, dict) else [(where, value)]


@pytest.fixture(scope="module", params=PRESETS)
def preset(request: pytest.FixtureRequest) -> tuple[str, DictConfig]:
    """A preset's name and the preset on FrozenLake's nano recipe."""
    return request.param, composed("nano/frozen_lake", f"algorithm={request.param}")


def test_every_preset_has_a_meaning() -> None:
    assert set(MEANING) == set(PRESETS)


def test_preset_means_what_the_table_says(preset: tuple[str, DictConfig]) -> None:
    name, config = preset
    algorithm, actor = config.algorithm, config.actor_rollout_ref.actor
    found = (
        algorithm.adv_estimator,
        config.critic.enable,
        actor.clip_ratio_high,
        algorithm.kl_ctrl.kl_coef if algorithm.use_kl_in_reward else None,
        actor.kl_loss_coef if actor.use_kl_loss else None,
        actor.loss_agg_mode,
        config.ragen.filter.strategy,
        actor.entropy_coeff,
    )
    assert found == MEANING[name]
    assert actor.clip_ratio_low == 0.2 and actor.clip_ratio_c == 3.0 and actor.ppo_epochs == 1


def test_preset_passes_our_checks_and_verls(preset: tuple[str, DictConfig]) -> None:
    config = copy.deepcopy(preset[1])
    check(config)
    verl_accepts(config)


def test_preset_states_what_it_depends_on(preset: tuple[str, DictConfig]) -> None:
    stated = dict(leaves(OmegaConf.to_container(alone(preset[0]), resolve=False)))
    wanted = STATED.split()
    for switch, keys in STATED_WHERE.items():
        wanted += keys if stated[switch] not in (False, "none") else ()
    for option in ESTIMATORS[stated["algorithm.adv_estimator"]].options:
        wanted.append(f"algorithm.{option}" if option in VERL_OPTIONS else f"ragen.advantage.{option}")
    assert [key for key in wanted if key not in stated] == []


@pytest.mark.parametrize("file", BASES, ids=lambda file: str(file.relative_to(FOLDER.parent)))
def test_no_base_changes_what_a_preset_states(file: Path) -> None:
    base = dict(leaves(yaml.safe_load(file.read_text())))
    for name in PRESETS:
        stated = dict(leaves(OmegaConf.to_container(alone(name), resolve=False)))
        assert {key: value for key, value in stated.items() if base.get(key, value) != value} == {}, name


def test_overrides_give_the_filter_of_the_main_table() -> None:
    overrides = ("mass=softmax", "temperature=1.0", "zero_variance=keep", "on_empty=skip", "stop_after=null")
    assert all(override in (FOLDER / "ragen2_ppo.yaml").read_text() for override in overrides)
    config = composed("nano/frozen_lake", "algorithm=ragen2_ppo", *(f"ragen.filter.{one}" for one in overrides))
    rule = check(config).filter.rule(16, 8)
    assert rule.options == {"value": 0.9, "mass": "softmax", "temperature": 1.0, "slack": 0.0}
    assert not rule.drop_zero_variance


# -- loss settings that are refused -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def baseline() -> DictConfig:
    config = composed("nano/frozen_lake", "algorithm=starpo_grpo")
    check_losses(config)
    return config


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (f"{ACTOR}policy_loss.loss_mode=ragen_turn_men", "did you mean ragen_turn_mean?"),
        (f"{ACTOR}clip_ratio=0.3", "clip_ratio is 0.3 but verl clips at clip_ratio_low, 0.2"),
        (f"{ACTOR}kl_loss_coef=0.0", "kl_loss_coef is 0.0: use a number above 0"),
        (f"{ACTOR}kl_loss_type=full+", "whole vocabulary"),
        ("algorithm.use_kl_in_reward=true algorithm.kl_ctrl.kl_coef=0", "algorithm.kl_ctrl.kl_coef is 0"),
        ("algorithm.use_kl_in_reward=true algorithm.kl_penalty=full", "algorithm.kl_penalty full"),
        (f"{ACTOR}loss_agg_mode=seq-mean-token-sum-norm", "loss_scale_factor is None"),
        (f"{ACTOR}loss_scale_factor=400", "set it to null"),
        ("critic.enable=true critic.loss_agg_mode=seq-mean-token-sum-norm", "critic.loss_scale_factor is None"),
        ("algorithm.rollout_correction.loss_type=reinforce", "does not pass it on"),
        ("algorithm.rollout_correction.rollout_is=token", "rollout_is is 'token' but has no effect"),
        ("algorithm.rollout_correction.rollout_rs=token_k1", "rollout_rs is 'token_k1' but has no effect"),
        (f"{ACTOR}grad_clip=0.5", "grad_clip is 0.5 but verl's engines clip"),
        ("critic.enable=true critic.grad_clip=0.5", "critic.optim.clip_grad, 1.0: set that one"),
    ],
)
def test_loss_setting_without_its_effect_is_refused(overrides: str, words: str, baseline: DictConfig) -> None:
    with refused(words):
        check_losses(changed(baseline, *overrides.split()))


@pytest.mark.parametrize("kind", ["kl", "k1"])
def test_a_kl_loss_that_does_not_pull_is_named(
    kind: str, baseline: DictConfig, caplog: pytest.LogCaptureFixture
) -> None:
    check_losses(changed(baseline, f"{ACTOR}kl_loss_type={kind}"))
    assert "zero mean" in caplog.text and f"use low_var_kl, k2 or {kind}+" in caplog.text


@pytest.mark.parametrize(
    "overrides",
    [
        f"{ACTOR}policy_loss.loss_mode={TURN_MEAN} {ACTOR}loss_agg_mode=seq-mean-token-mean",
        f"{ACTOR}loss_agg_mode=seq-mean-token-sum-norm {ACTOR}loss_scale_factor=600",
        f"{ACTOR}loss_agg_mode=seq-mean-token-sum-norm {ACTOR}loss_scale_factor=600 critic.enable=true "
        "critic.loss_agg_mode=token-mean",
        f"{ACTOR}kl_loss_type=k1+",
        f"{ACTOR}optim.clip_grad=0.5",
        f"{ACTOR}policy_loss.loss_mode=gspo",
        "algorithm.use_kl_in_reward=true algorithm.kl_penalty=kl",
        "algorithm.rollout_correction.bypass_mode=false algorithm.rollout_correction.rollout_is=token",
    ],
)
def test_loss_settings_that_act_pass(overrides: str, baseline: DictConfig) -> None:
    config = changed(baseline, *overrides.split())
    check_losses(config)
    verl_accepts(config)


# -- the pages that explain them --------------------------------------------------------------------------------------


def test_every_name_of_an_algorithm_is_explained_on_a_page() -> None:
    pages = ("algorithms", "filters", "diagnostics")
    lines = [line for page in pages for line in (ROOT / "docs" / f"{page}.md").read_text().splitlines()]
    code = "\n".join(line if line.startswith("    ") else "\n".join(re.findall("`([^`]+)`", line)) for line in lines)
    names = {
        *PRESETS, *ESTIMATORS, *WEIGHTS, *STRATEGIES, *SCORES, *POLICY_LOSSES, *AGGREGATIONS, *CONTEXTS,
        *CAUSES,
        *(option for one in (*STRATEGIES.values(), *SCORES.values()) for option in options_of(one.function)),
        *(option for one in ESTIMATORS.values() for option in one.options),
        *(one.name for block in (Advantage, Filter, Diagnostics, Stop) for one in fields(block) if one.type != "dict"),
    }  # fmt: skip
    assert sorted(name for name in names if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", code)) == []
