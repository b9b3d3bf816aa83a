"""Recipes composed as Hydra does it, and changed as on the command line."""

from __future__ import annotations

import copy
from functools import cache

import yaml
from hydra import compose, initialize_config_module
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core import plugins
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf

from ragen_verl.resolvers import find_verl, register_resolvers


def composed(recipe: str, *overrides: str) -> DictConfig:
    """A recipe with overrides; those that choose no other file are applied afterwards, as Hydra applies them itself.

    Composing takes 0.7 s of a core, a copy 0.1 s.
    """
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    files = tuple(one.input_line for one in parsed if "." not in one.key_or_group)
    config = copy.deepcopy(_composed(recipe, files))
    ConfigLoaderImpl._apply_overrides_to_config([one for one in parsed if one.input_line not in files], config)
    return config


def hydra_finds_verl() -> None:
    """Register resolvers and search path as the plugin does when verl is imported, which a test may not have done."""
    register_resolvers()
    if not plugins.Plugins.instance().discover(SearchPathPlugin):
        find_verl(plugins)


@cache
def _composed(recipe: str, overrides: tuple[str, ...]) -> DictConfig:
    hydra_finds_verl()
    with initialize_config_module("ragen_verl.recipes", version_base=None):
        return compose(recipe, overrides=list(overrides))


def changed(config: DictConfig, *overrides: str) -> DictConfig:
    """A copy with overrides as on the command line, without composing everything again."""
    config = copy.deepcopy(config)
    OmegaConf.set_struct(config, False)
    for override in overrides:
        key, _, value = override.lstrip("+").partition("=")
        OmegaConf.update(config, key, yaml.safe_load(value), force_add=True)
    return config


def verl_accepts(config: DictConfig) -> None:
    """verl's validation, and its dataclasses of every block that workers receive."""
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    OmegaConf.resolve(config)
    with_reference, with_critic = need_reference_policy(config), need_critic(config)
    validate_config(config, with_reference, with_critic)
    actor_rollout_ref = config.actor_rollout_ref
    ref = OmegaConf.create(OmegaConf.to_container(actor_rollout_ref.ref))
    for name in ("micro_batch_size", "micro_batch_size_per_gpu", "max_token_len_per_gpu"):
        ref[f"ppo_{name}"] = ref.pop(f"log_prob_{name}")  # as verl's worker does (workers/engine_workers.py:545-552)
    ref.use_dynamic_bsz = ref.pop("log_prob_use_dynamic_bsz")
    blocks = [actor_rollout_ref[name] for name in ("actor", "rollout", "model")] + [config.algorithm]
    for block in blocks + [ref] * with_reference + [config.critic] * with_critic:
        omega_conf_to_dataclass(block)
