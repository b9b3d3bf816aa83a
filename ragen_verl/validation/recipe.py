"""The checks before Ray starts: whether a recipe contradicts itself, verl or the machine.

`ragen-verl` calls `check(config)`. verl's own main calls it through the Hydra callback `RecipeCheck`, which
recipes/ragen.yaml switches on. Each refusal is one sentence that says what to change.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from ragen_verl import extensions
from ragen_verl.config import RagenConfig, unresolved
from ragen_verl.diagnostics.registry import CAUSES, INDICATORS, with_options
from ragen_verl.env import Env, registry
from ragen_verl.errors import RecipeError
from ragen_verl.resolvers import register_resolvers
from ragen_verl.runs import lock
from ragen_verl.switch import SWITCH, WITHOUT
from ragen_verl.validation.batches import check_batches
from ragen_verl.validation.estimators import check_estimator
from ragen_verl.validation.filter import check_filter
from ragen_verl.validation.keys import check_keys
from ragen_verl.validation.losses import check_losses
from ragen_verl.validation.machine import check_machine, make_paths_absolute
from ragen_verl.validation.model import check_folders, check_model
from ragen_verl.validation.rollout import check_rollout
from ragen_verl.validation.tasks import check_tasks
from ragen_verl.validation.trainer import check_trainer, warmup_steps
from ragen_verl.validation.values import check_values

__all__ = ["RecipeCheck", "check"]

_REFUSED = 2  # exit code of a refused recipe

# key -> the value that a recipe with a ragen block needs, for this package's trainer, dataset and agent loop
_PLUGIN_KEYS = {
    "trainer.use_v1": True,
    "transfer_queue.enable": True,
    "data.train_files": "env://train",
    "data.val_files": "env://val",
    "data.shuffle": False,
    "data.custom_cls.path": "pkg://ragen_verl.training.dataset",
    "data.custom_cls.name": "EnvDataset",
    "actor_rollout_ref.rollout.agent.default_agent_loop": "ragen",
}


class RecipeCheck(Callback):
    """Hydra callback: checks the composed recipe and ends the process with code 2 and one sentence if it is refused.

    It raises SystemExit, because Hydra only warns about other exceptions of callbacks.
    """

    def __init__(self) -> None:
        self._checked = False

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Check a single run before Hydra makes its output folder."""
        self._check(config)

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Check each job of a multirun, for which Hydra does not call `on_run_start`."""
        if not self._checked:
            self._check(config)

    def _check(self, config: DictConfig) -> None:
        self._checked = True
        try:
            make_paths_absolute(config)
            ragen = check(config)
            check_machine(config)
            import_module("ragen_verl.plugin").activate()  # which imports verl; commands check without it
            _hand_on(config, ragen.plugins)
            lock.hold(Path(config.ragen.run.dir))
        except RecipeError as error:
            print(f"Recipe refused: {error}", file=sys.stderr)
            raise SystemExit(_REFUSED) from None


def check(config: DictConfig, template: bool = True) -> RagenConfig:
    """Check a composed recipe and return its typed `ragen` block.

    Args:
        config: verl's whole configuration, interpolations unresolved or not.
        template: whether to check the model's chat template, which needs to import transformers and torch.

    Raises:
        RecipeError: the recipe is refused; one sentence says what is wrong and what to change.
    """
    register_resolvers()
    if not config.get("ragen"):
        raise RecipeError("The recipe has no ragen block: put /ragen at the head of its defaults list.")
    ragen = RagenConfig.from_omegaconf(config)
    try:
        check_keys(config)
        check_folders(config)  # before sizes are resolved, which are read from them
        own = OmegaConf.masked_copy(config, [key for key in config if key != "hydra"])  # Hydra's has no values yet
        check_values(OmegaConf.to_container(own, resolve=True))
        _check_plugin(config)
        check_trainer(config)
        check_tasks(ragen.splits, {name: _check_envs(name, split.envs) for name, split in ragen.splits.items()})
        ragen.check_seeds(_steps(config) + warmup_steps(config))
        with_options(INDICATORS, ragen.diagnostics.indicators, "indicators")
        with_options(CAUSES, ragen.diagnostics.causes, "causes")
        ragen.diagnostics.gradient_signal.check(
            config.actor_rollout_ref.actor.strategy, config.actor_rollout_ref.rollout.n
        )
        check_filter(config, ragen)
        check_rollout(config, ragen)
        _check_algorithm(config, ragen)
        check_losses(config)
        check_batches(config, ragen)
        check_model(config, ragen, template)
    except OmegaConfBaseException as error:
        raise RecipeError(unresolved(error)) from error
    return ragen


def _hand_on(config: DictConfig, files: tuple[str, ...]) -> None:
    """Put absolute paths of plugin files into the config, and this package's variables into Ray's environment."""
    with open_dict(config):
        config.ragen.plugins = list(files)
        for name in (SWITCH, WITHOUT, extensions.FILES):
            if name in os.environ:
                OmegaConf.update(
                    config, f"ray_kwargs.ray_init.runtime_env.env_vars.{name}", os.environ[name], force_add=True
                )


def _check_plugin(config: DictConfig) -> None:
    for key, wanted in _PLUGIN_KEYS.items():
        found = OmegaConf.select(config, key)
        if found != wanted:
            raise RecipeError(f"{key} is {found!r} but a recipe with a ragen block needs {wanted!r}: leave it out.")


def _check_envs(split: str, envs: tuple) -> list[Env]:
    """Build each environment once, and return them closed."""
    seen, built = set(), []
    for i, env in enumerate(envs):
        where = f"ragen.{split}.envs[{i}]"
        built.append(_build(where, env.id, env.kwargs))
        for j, stage in enumerate(env.schedule):
            if stage.kwargs:
                _build(f"{where}.schedule[{j}]", env.id, env.kwargs_at(stage.step))
        if env.tag in seen:
            raise RecipeError(
                f"ragen.{split}.envs has two environments called {env.tag} in the metrics: give one of them a name."
            )
        seen.add(env.tag)
    return built


def _build(where: str, id: str, kwargs: dict[str, Any]) -> Env:
    """Build an environment once, because only its constructor knows which arguments it takes."""
    try:
        env = registry.make(id, **kwargs)
        env.close()
        return env
    except RecipeError as error:
        raise type(error)(f"{where}: {error}") from error
    except Exception as error:
        raise RecipeError(f"{where}: {id} cannot be built ({type(error).__name__}: {error}).") from error


def _steps(config: DictConfig) -> int:
    steps = config.trainer.total_training_steps
    if not isinstance(steps, int) or steps < 1:
        raise RecipeError(
            f"trainer.total_training_steps is {steps!r} but environments never end, so a run needs a number of steps."
        )
    return steps


def _check_algorithm(config: DictConfig, ragen: RagenConfig) -> None:
    """Refuse an estimator, clipping or a KL term that verl would run with another effect than the recipe says."""
    algorithm, actor = config.algorithm, config.actor_rollout_ref.actor
    check_estimator(config, ragen.advantage)
    if actor.clip_ratio_low > actor.clip_ratio_high:
        raise RecipeError(
            f"actor_rollout_ref.actor.clip_ratio_low, {actor.clip_ratio_low}, is above clip_ratio_high, "
            f"{actor.clip_ratio_high}: clip-higher needs it the other way round."
        )
    if algorithm.filter_groups.enable:
        raise RecipeError(
            "algorithm.filter_groups is verl's own group filter and would run before ragen.filter: disable it."
        )
