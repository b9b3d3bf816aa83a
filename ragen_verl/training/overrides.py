"""Changes of verl's config, and temporary ones of worker groups and controllers, which are undone after a call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from omegaconf import DictConfig, open_dict

from ragen_verl.config import RagenConfig
from ragen_verl.names import ACTOR, SAMPLER

__all__ = ["WorkerGroupProxy", "complete", "kl_over_real_rows", "temporarily", "with_extra_info"]


def complete(config: DictConfig, ragen: RagenConfig, mode: str) -> None:
    """Set the keys of verl's config that follow from the recipe.

    Args:
        config: the whole configuration.
        ragen: its `ragen` block.
        mode: verl's name of its own trainer that the recipe's trainer is built on.
    """
    rule, groups, chosen = ragen.filter, ragen.train.groups, config.trainer.v1.sampler
    with open_dict(config):
        config.trainer.v1.trainer_mode = mode  # verl takes every name but sync for asynchronous
        chosen.custom_sampler = {"path": f"pkg://{SAMPLER}", "name": "sampler"}
        chosen.sampler_kwargs = {
            "target": rule.target(groups) if rule.dynamic_sampling else None,
            "limit": rule.extra_groups(groups),
            "sync_refill_failed_groups": chosen.sync_refill_failed_groups,
        }
        if rule.dynamic_sampling:
            config.data.gen_batch_size = 1  # dynamic sampling takes any number of groups from the data stream
        if config.critic.use_dynamic_bsz and "ppo_infer_max_token_len_per_gpu" not in config.critic:
            # verl's critic reads the tokens of a pass from this key alone (trainer_base.py:267)
            config.critic.ppo_infer_max_token_len_per_gpu = config.critic.ppo_max_token_len_per_gpu


@contextmanager
def temporarily(block: DictConfig, **values: Any) -> Iterator[None]:
    """A context in which these keys of a block of verl's config have these values."""
    before = {key: block[key] for key in values}
    block.update(values)
    try:
        yield
    finally:
        block.update(before)


class WorkerGroupProxy:
    """A worker group whose calls carry these values to the workers: verl offers no other way to pass them.

    Args:
        group: verl's worker group.
        values: values for `extra_info` of the batch of every call that has one (`global_batch_size`,
            `micro_batch_size_per_gpu`).
    """

    def __init__(self, group: Any, values: dict[str, Any]) -> None:
        self._group, self._values = group, values

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._group, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if args and hasattr(args[0], "extra_info"):  # a batch; verl also makes calls without one
                args[0].extra_info.update(self._values)
            return method(*args, **kwargs)

        return call


@contextmanager
def with_extra_info(trainer: Any, group: str, **values: Any) -> Iterator[None]:
    """A context in which calls of the trainer's worker group `group` carry these values; None is left out."""
    workers = getattr(trainer, group)
    given = {key: value for key, value in values.items() if value is not None}
    setattr(trainer, group, WorkerGroupProxy(workers, given))
    try:
        yield
    finally:
        setattr(trainer, group, workers)


class _RealRowsKL:
    """verl's controller of the KL in the reward, with the mean over the rows that are no padding.

    verl averages over all rows (trainer/ppo/ray_trainer.py, `apply_kl_penalty`), and padding has a KL of 0. So the mean
    is too low, and an adaptive coefficient falls when it should rise.

    Args:
        control: verl's controller.
        rows: the number of rows to train on.
    """

    def __init__(self, control: Any, rows: int) -> None:
        self._control, self.rows = control, rows

    @property
    def value(self) -> float:
        """The coefficient."""
        return self._control.value

    def update(self, current_kl: float, n_steps: int) -> None:
        """Update the coefficient; `current_kl` is verl's mean over `n_steps` rows."""
        self._control.update(current_kl=current_kl * n_steps / self.rows, n_steps=self.rows)


@contextmanager
def kl_over_real_rows(trainer: Any, metrics: dict[str, Any], rows: int, padded: int) -> Iterator[None]:
    """A context in which padding counts neither for the KL coefficient of the reward nor in the KL metric."""
    control = getattr(trainer, "kl_ctrl_in_reward", None)
    if control is None:
        yield
        return
    trainer.kl_ctrl_in_reward = _RealRowsKL(control, rows)
    try:
        yield
        metrics[f"{ACTOR}/reward_kl_penalty"] *= padded / rows
    finally:
        trainer.kl_ctrl_in_reward = control
