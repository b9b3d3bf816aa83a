"""The join of the estimators with verl: one function in its registry, which gets what verl gives no estimator.

verl sends `gae` and `grpo` to functions of its own and gives any other estimator rewards, mask and group labels only
(trainer/ppo/ray_trainer.py:187-282). So one function is registered there, and `estimating` puts its name into the
config for the time of one computation, and beside it what is missing: which of our estimators it is, which rows are one
trajectory, the mask as it was sampled, the critic's values, the states of the turns. An estimator that somebody else
registered with verl is left to verl.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import transfer_queue as tq
from omegaconf import DictConfig
from torch import Tensor
from transfer_queue import KVBatchMeta

from ragen_verl.advantages.batch import AdvantageBatch
from ragen_verl.advantages.estimate import estimate
from ragen_verl.advantages.registry import ESTIMATORS
from ragen_verl.config.advantage import Advantage
from ragen_verl.names import ESTIMATOR
from ragen_verl.training.batch import RowKey, TrajectoryBatch, indices
from ragen_verl.training.overrides import configured


@dataclass(frozen=True)
class Context:
    """What the estimator of the batch in hand is given besides verl's arguments; rows in verl's order.

    Attributes:
        name: the estimator.
        keys: `{uid}_{session}_{index}` of each row: group, trajectory, place of the row in it.
        options: see `ragen_verl.advantages.estimate`.
        mask: (rows, T), the mask as sampled: verl's own may have lost rejected tokens, which would split turns.
        values: (rows, T) or None.
        states: the states of each row's turns, or None.
        ends: the last column of each row's turns; None where the mask tells them (see `AdvantageBatch`).
    """

    name: str
    keys: Sequence[str]
    options: Mapping[str, Any]
    mask: Tensor
    values: Tensor | None = None
    states: list[list[str]] | None = None
    ends: list[tuple[int, ...]] | None = None


_CONTEXT: ContextVar[Context | None] = ContextVar("ragen_verl_advantages", default=None)


def register(register_adv_est: Callable) -> None:
    """Register the one function with verl's decorator."""
    register_adv_est(ESTIMATOR)(_compute)


@contextmanager
def estimating(
    config: DictConfig, advantage: Advantage, batch: KVBatchMeta, trajectories: TrajectoryBatch
) -> Iterator[None]:
    """While open, verl's computation of advantages on `batch` is that of the recipe's estimator.

    Nothing changes for an estimator that is registered with verl alone.

    Args:
        config: verl's whole config; `algorithm.adv_estimator` is another while this is open.
        advantage: the recipe's options.
        batch: the rows, padding included.
        trajectories: those that the rows are of.
    """
    name = config.algorithm.adv_estimator
    estimator = ESTIMATORS.get(name)
    if estimator is None:
        yield
        return
    wanted = ["response_mask"] + ["values"] * estimator.needs_critic
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=wanted)
    fields = data.to_padded_tensor()  # as verl pads what it reads itself
    context = Context(
        name=name,
        keys=batch.keys,
        options=advantage.arguments(config.algorithm),
        mask=fields["response_mask"],
        values=fields.get("values"),
        states=trajectories.states(batch.keys) if estimator.needs_states else None,
        ends=trajectories.ends(batch.keys),
    )
    with using(context), configured(config.algorithm, adv_estimator=ESTIMATOR):
        yield


@contextmanager
def using(context: Context) -> Iterator[None]:
    """While open, the registered function works on the rows of this context."""
    token = _CONTEXT.set(context)
    try:
        yield
    finally:
        _CONTEXT.reset(token)


@contextmanager
def halved(wanted: bool) -> Iterator[None]:
    """While open, inside `estimating` or `using`, the halves that cross-fitting chooses by each other are groups.

    A baseline over both halves, where both are kept, would hold the returns that the other half was chosen by.
    """
    context = _CONTEXT.get()
    if not wanted or context is None:
        yield
        return
    parts = map(RowKey.parse, context.keys)
    keys = [f"{uid}:{int(session) % 2}_{session}_{index}" for uid, session, index in parts]
    with using(replace(context, keys=keys)):
        yield


def _compute(token_level_rewards: Tensor, response_mask: Tensor, **_: Any) -> tuple[Tensor, Tensor]:
    """Called with verl's arguments; its gamma, labels and config are in the context already."""
    context = _CONTEXT.get()
    if context is None:
        raise RuntimeError(f"{ESTIMATOR} is for this package's trainer: name an estimator and use ragen_sync")
    groups, trajectories, order = indices(context.keys)
    batch = AdvantageBatch(
        rewards=token_level_rewards,
        mask=context.mask,
        groups=groups,
        trajectories=trajectories,
        order=order,
        values=context.values,
        states=context.states,
        ends=context.ends,
    )
    advantages, returns = estimate(context.name, batch, context.options)
    return advantages * response_mask, returns * response_mask
