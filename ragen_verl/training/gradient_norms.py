"""Gradient norms of a loss's components on verl's workers, without an optimiser step.

`ragen_verl.training.probes` sends the function of this module through verl's generic call, which passes the worker to
it; so no worker class of verl is replaced.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl.trainer.ppo.core_algos import agg_loss, kl_penalty
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.device import get_device_id, get_device_name
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import no_padding_2_padding

from ragen_verl.errors import RecipeError

__all__ = ["gradient_norms"]

_COMPONENTS = ("task", "entropy", "kl")


def gradient_norms(worker: Any, data: TensorDict) -> dict[str, float] | None:
    """The norm of each component's gradient over `data` and all ranks; it runs on a worker.

    verl's `train_batch` computes gradients, clips them (the norm is that before clipping) and makes a step. Here the
    step is suppressed, and leaving the engine's training mode clears the gradients.

    Args:
        worker: verl's `ActorRolloutRefWorker`.
        data: this rank's rows.

    Returns:
        Component -> norm with coefficient 1; None on ranks that hold no output.
    """
    training, data = worker.actor, data.copy()  # verl's settings go into the copy
    settings = OmegaConf.merge(worker.config.actor, {"use_kl_loss": False})
    config = omega_conf_to_dataclass(settings)
    losses = {"task": _task_loss, "entropy": _entropy_loss, "kl": _kl_loss}
    norms: dict[str, float] = {}
    for component in _COMPONENTS:
        if component == "kl" and "ref_log_prob" not in data:
            continue
        tu.assign_non_tensor(data, calculate_entropy=component == "entropy")
        with _same_random_numbers(), _no_step(training), _loss(training, partial(losses[component], config)):
            output = training.train_batch(data)
        if output is not None:
            norms[component] = float(tu.get(output, "metrics")["grad_norm"])
    return norms or None


def _task_loss(config: Any, model_output: dict, data: TensorDict, dp_group: Any = None) -> tuple[torch.Tensor, dict]:
    """The recipe's policy loss, without its other terms."""
    return ppo_loss(config, {"log_probs": model_output["log_probs"]}, data, dp_group)


def _entropy_loss(config: Any, model_output: dict, data: TensorDict, dp_group: Any = None) -> tuple[torch.Tensor, dict]:
    """Mean token entropy."""
    return _mean(config, no_padding_2_padding(model_output["entropy"], data), data), {}


def _kl_loss(config: Any, model_output: dict, data: TensorDict, dp_group: Any = None) -> tuple[torch.Tensor, dict]:
    """Mean KL estimate against the reference model, by the recipe's estimator."""
    log_prob = no_padding_2_padding(model_output["log_probs"], data)
    reference = data["ref_log_prob"].to_padded_tensor(0.0)
    return _mean(config, kl_penalty(log_prob, reference, config.kl_loss_type), data), {}


def _mean(config: Any, values: torch.Tensor, data: TensorDict) -> torch.Tensor:
    """The recipe's average over tokens, computed as in verl's own loss (workers/utils/losses.py:120-135)."""
    return agg_loss(
        values,
        data["response_mask"].to_padded_tensor(0).to(bool),
        config.loss_agg_mode,
        dp_size=data["dp_size"],
        batch_num_tokens=data["batch_num_tokens"],
        global_batch_size=data["global_batch_size"],
        loss_scale_factor=config.loss_scale_factor,
    )


@contextmanager
def _no_step(training: Any) -> Iterator[None]:
    """A context in which the optimizer's step does nothing: weights and moments stay."""
    optimizer = training.engine.optimizer
    if not isinstance(optimizer, torch.optim.Optimizer):  # Megatron's computes the norm inside its step
        raise RecipeError(
            "ragen.diagnostics.gradient_signal needs actor_rollout_ref.actor.strategy fsdp or fsdp2: "
            "set its enabled to false."
        )
    own = vars(optimizer).get("step")  # a schedule wraps the method in an attribute
    optimizer.step = lambda *_, **__: None
    try:
        yield
    finally:
        del optimizer.step
        if own is not None:
            optimizer.step = own


@contextmanager
def _loss(training: Any, loss: Any) -> Iterator[None]:
    """A context in which the worker's loss is `loss`."""
    own = training.loss_fn
    training.set_loss_fn(loss)
    try:
        yield
    finally:
        training.set_loss_fn(own)


@contextmanager
def _same_random_numbers() -> Iterator[None]:
    """A context that restores the random generator, so that draws inside (dropout) do not change later ones."""
    device = get_device_name()
    with (
        torch.random.fork_rng(devices=[])
        if device == "cpu"
        else torch.random.fork_rng(devices=[get_device_id()], device_type=device)
    ):
        yield
