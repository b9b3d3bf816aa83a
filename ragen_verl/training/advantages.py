"""The connection of the estimators to verl: one function in verl's registry, with the data that verl does not pass.

verl uses its own functions for `gae` and `grpo`, and passes to any other estimator only rewards, mask and group labels
(trainer/ppo/ray_trainer.py:187-282). So one function is registered with verl. For the time of one computation,
`own_estimator` puts its name into the config and keeps the missing data: the name of the real estimator, the rows of
each trajectory, the mask as sampled, the critic's values, the states of the turns. verl handles estimators that others
registered with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from omegaconf import DictConfig
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ragen_verl.advantages.batch import AdvantageBatch
from ragen_verl.advantages.estimate import estimate
from ragen_verl.advantages.registry import ESTIMATORS
from ragen_verl.config.advantage import Advantage
from ragen_verl.names import ESTIMATOR
from ragen_verl.training import data_plane
from ragen_verl.training.batch import RowKey, TrajectoryBatch, indices
from ragen_verl.training.data_plane import Batch
from ragen_verl.training.overrides import temporarily

__all__ = ["Context", "halves_as_groups", "own_estimator", "register", "using"]


@dataclass(frozen=True)
class Context:
    """The estimator's data for the present batch in addition to verl's arguments; rows are in verl's order.

    Attributes:
        name: the name of the estimator.
        keys: `{uid}_{session}_{index}` of each row: group, trajectory, position of the row in it.
        options: see `ragen_verl.advantages.estimate`.
        mask: (rows, T), the mask as sampled: verl's own may have lost rejected tokens, which would split turns.
        values: (rows, T) or None.
        states: the states of each row's turns, or None.
        ends: the last column of each of the row's turns; None where the mask shows them (see `AdvantageBatch`).
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
def own_estimator(
    config: DictConfig, advantage: Advantage, batch: Batch, trajectories: TrajectoryBatch
) -> Iterator[None]:
    """A context in which verl computes advantages on `batch` with the recipe's estimator.

    It changes nothing for an estimator that is registered only with verl.

    Args:
        config: verl's whole config; its `algorithm.adv_estimator` is replaced in the context.
        advantage: the recipe's options.
        batch: the rows, with padding.
        trajectories: the trajectories of the rows.
    """
    name = config.algorithm.adv_estimator
    estimator = ESTIMATORS.get(name)
    if estimator is None:
        yield
        return
    wanted = ["response_mask"] + ["values"] * estimator.needs_critic
    data = data_plane.current.get(batch, batch.keys, wanted)
    fields = {field: pad_sequence(rows, batch_first=True) for field, rows in data.items()}  # as verl does
    context = Context(
        name=name,
        keys=batch.keys,
        options=advantage.arguments(config.algorithm),
        mask=fields["response_mask"],
        values=fields.get("values"),
        states=trajectories.states(batch.keys) if estimator.needs_states else None,
        ends=trajectories.ends(batch.keys),
    )
    with using(context), temporarily(config.algorithm, adv_estimator=ESTIMATOR):
        yield


@contextmanager
def using(context: Context) -> Iterator[None]:
    """A context in which the registered function works on the rows of `context`."""
    token = _CONTEXT.set(context)
    try:
        yield
    finally:
        _CONTEXT.reset(token)


@contextmanager
def halves_as_groups(wanted: bool) -> Iterator[None]:
    """A context inside `own_estimator` or `using` in which the two halves of cross-fitting are groups of their own.

    If both halves are kept, a baseline over both would contain the returns by which the other half was chosen.
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
    """The registered function; verl's gamma, labels and config are ignored, since the context has them."""
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
