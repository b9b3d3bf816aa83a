"""The trainers that verl finds by name: one waits for a step's groups, two train on those that have ended."""

from __future__ import annotations

import ray
from omegaconf import DictConfig
from verl.plugin.platform import get_platform
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync
from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from ragen_verl.errors import RecipeError
from ragen_verl.names import ASYNC_TRAINER, DISAGGREGATED_TRAINER, TRAINER
from ragen_verl.training.overrides import temporarily
from ragen_verl.training.trainer import AgentTrainer

__all__ = ["RagenAsyncTrainer", "RagenDisaggregatedTrainer", "RagenTrainer"]


@register_trainer(TRAINER)
class RagenTrainer(AgentTrainer, PPOTrainerSync):
    """`trainer.v1.trainer_mode: ragen_sync`: the engine plays a step's groups and sleeps while they are trained on."""

    mode = "sync"


@register_trainer(ASYNC_TRAINER)
class RagenAsyncTrainer(AgentTrainer, PPOTrainerColocateAsync):
    """`trainer.v1.trainer_mode: ragen_async`: the engine pauses during the update, since both share devices.

    Environments continue during the pause, and a request that it cuts is continued with the new weights. Groups are in
    flight all the time, and a step takes the oldest finished ones (`ragen_verl.training.oldest_groups`).
    """

    mode = "colocate_async"


@register_trainer(DISAGGREGATED_TRAINER)
class RagenDisaggregatedTrainer(AgentTrainer, PPOTrainerSeparateAsync):
    """`trainer.v1.trainer_mode: ragen_disaggregated`: the engine has its own devices and plays during training.

    The trainer's devices have no engine. Weights are pushed after every step.
    """

    mode = "separate_async"

    def __init__(self, config: DictConfig) -> None:
        # verl asserts that a step is made of whole PPO mini-batches of which each is sampled alone; here a step is
        # sampled as one and then divided as the recipe says
        with temporarily(config.actor_rollout_ref.actor, ppo_mini_batch_size=config.data.train_batch_size):
            super().__init__(config)

    def init(self) -> None:
        """Check first that there are enough devices: Ray would wait for the engine's forever."""
        with self.recorder.folder.keeps_cause():
            _check_devices(self.config)
        super().init()
        # verl copies the actor to main memory in each step, to come back to it in a later update before the next push;
        # a step here is one sample, whose old log-probabilities are computed before its first update
        self.actor_rollout_wg.save_model_to_cpu = lambda step: None


def _check_devices(config: DictConfig) -> None:
    trainer, engine = config.trainer, config.actor_rollout_ref.rollout
    training, playing = (block.nnodes * block.n_gpus_per_node for block in (trainer, engine))
    there = int(ray.cluster_resources().get(get_platform().ray_resource_name(), 0))
    if training + playing > there:
        raise RecipeError(
            f"mode=disaggregated needs {training} + {playing} devices (trainer.nnodes x n_gpus_per_node and the same "
            f"of actor_rollout_ref.rollout) and the cluster has {there}: lower them, or use mode=async, in which "
            "trainer and engine share devices."
        )
